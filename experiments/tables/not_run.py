"""Lines whose records are not public for download without an account: a user's own folder is read, if there is one."""

from __future__ import annotations

from experiments.tables.catalogue import Entry
from experiments.tables.result import Papers

FEDERATED = "Triastcyn & Faltings 2019"


def _aptos(
    name: str, table: str, accuracy: tuple[float, float, float], epsilon: tuple[float, float], delta: float
) -> Entry:
    papers = Papers(
        f"{FEDERATED}, Table {table}",
        dict(zip(("without privacy", "DP", "BDP"), accuracy, strict=True)),
        dict(zip(("DP", "BDP"), epsilon, strict=True)),
        delta,
    )
    return Entry(table, name, papers, None, {"data": "aptos"}, "needs the images of APTOS 2019")


ENTRIES = (
    _aptos("APTOS, 100 clients", "III", (70, 60, 65), (8, 2.1), 1e-3),
    _aptos("APTOS, 1,000 clients", "III", (71, 67, 68), (2, 0.5), 1e-5),
    _aptos("APTOS, 10,000 clients", "III", (72, 68, 69), (1, 0.2), 1e-6),
)
