"""How long the budget answer takes, as a ratio to /livez, with a ledger of ten entries and of ten thousand.

    python -m benchmarks.budget_latency [--entries 10 10000] [--pairs 600]

A coordinator on SQLite in a thread of this process; the two requests go out in turn over one kept connection, and
the table gives medians of the ratios of pairs. Results go to benchmarks/results/budget_latency.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accounting.budget.ledger import append
from client_sdk.protocol.study.messages import LedgerHead
from client_sdk.protocol.wire.signing import LEDGER_HEAD, canonical_json
from experiments import tiny
from server.db.ledger_store import lock_account
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import LedgerRow
from tests.factories.live_coordinator import Live, live

RESULTS = Path(__file__).parent / "results" / "budget_latency.json"


def open_with_ledger(here: Live, study: str, entries: int) -> None:
    """A study whose ledger is `entries` long. The statement is the one of its opening: only the length matters here."""
    limit = {"level": "instance", "definition": "classical", "epsilon": 1000.0, "delta": 1e-5}
    chosen = tiny.settings("parallel", clients=2, rounds=50, bayesian=False, deadline_seconds=600.0, limits=[limit])
    here.open_study(study, chosen)
    here.coordinator.database.write("benchmark", lambda tx: _lengthen(here, tx, study, entries))


def _lengthen(here: Live, tx: Transaction, study: str, entries: int) -> None:
    account = lock_account(tx, here.coordinator.signer, find_study(tx, study))
    newest, now = account.newest, tx.now()
    last = newest.sequence
    for sequence in range(last + 1, entries + 1):
        round = sequence - last
        newest = append(newest, "reserved" if round % 2 else "cancelled", (round + 1) // 2, account.newest.body)
        body = canonical_json(newest.body).decode()
        content = {name: value for name, value in newest.to_dict().items() if name != "body"}
        tx.session.add(LedgerRow(study_id=account.row.study_id, body=body, written_at=now, **content))
    head = LedgerHead(study=study, entries=newest.sequence, sha256=newest.sha256)
    account.row.entries, account.row.head_sha256 = newest.sequence, newest.sha256
    account.row.signature = here.coordinator.signer.sign(LEDGER_HEAD, head.model_dump(mode="json"))


def measure(here: Live, study: str, pairs: int) -> dict[str, float]:
    """Medians over `pairs` of requests in turn, after a tenth of them as a warm-up."""
    budget, livez = [], []
    for _ in range(pairs + pairs // 10):
        budget.append(_seconds(here, f"/v1/studies/{study}/budget", here.viewer_key))
        livez.append(_seconds(here, "/livez", None))
    budget, livez = budget[pairs // 10 :], livez[pairs // 10 :]
    return {
        "budget_ms": 1000 * statistics.median(budget),
        "livez_ms": 1000 * statistics.median(livez),
        "ratio": statistics.median(a / b for a, b in zip(budget, livez, strict=True)),
    }


def _seconds(here: Live, path: str, key: str | None) -> float:
    started = time.perf_counter()
    answer = here.send("GET", path, key)
    taken = time.perf_counter() - started
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code} {answer.text}")
    return taken


def report(sizes: Sequence[int], pairs: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    print(f"{'ledger entries':>15} {'budget, ms':>12} {'/livez, ms':>12} {'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder, live(Path(folder)) as here:
        for entries in sizes:
            open_with_ledger(here, f"ledger-{entries}", entries)
        for entries in sizes:
            row = {"entries": entries, **measure(here, f"ledger-{entries}", pairs)}
            print(f"{entries:15,} {row['budget_ms']:12.2f} {row['livez_ms']:12.2f} {row['ratio']:8.2f}")
            rows.append(row)
    versions = {name: version(name) for name in ("fastapi", "uvicorn", "sqlalchemy", "pydantic")}
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return {**machine, "versions": versions, "pairs": pairs, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of the budget endpoint against /livez.")
    parser.add_argument("--entries", type=int, nargs="+", default=[10, 10_000])
    parser.add_argument("--pairs", type=int, default=600)
    options = parser.parse_args()
    made = report(options.entries, options.pairs)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
