"""The lines of tables I, II and IV, as the papers print them, and what is asked of each here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from accounting import calibrate_noise
from research.tables.federated import FederatedSettings
from research.tables.result import Papers
from wardround.demo.scenarios import DataMissing

CHOSEN_SETTINGS = Path("research/benchmarks/results/tables_settings.json")
INSTANCE_DELTA = 1e-5
# Records of a client. MNIST: as in the papers.
EACH = {"MNIST": 600, "PneumoniaMNIST": 52, "APTOS": 350}
PAPER = "Triastcyn & Faltings 2019"


@dataclass(frozen=True)
class Line:
    """One line: worst-case ε of a client, its δ, how records are dealt, and the accuracy aimed at in per cent.

    instance  the most that a record's ε may be in the worst case, at `INSTANCE_DELTA`; None: whatever it is
    against   which of the papers' ε it is held at: "DP", or the smaller "BDP", which theirs does not hold in the worst
              case
    """

    table: str
    clients: int
    epsilon: float
    delta: float
    split: str
    papers: Papers
    against: str
    goal: float | None = None
    instance: float | None = None
    data: str = "MNIST"

    @property
    def name(self) -> str:
        """As the page calls it."""
        dealt = {"iid": "iid", "shards": "non-iid"}[self.split]
        before = "" if self.data == "MNIST" else f"{self.data}, "
        suffix = "" if self.table != "IV" else f", {dealt}"
        return f"{before}{self.clients:,} clients{suffix}, ε {self.epsilon:g}"

    @property
    def each(self) -> int:
        """Records of a client."""
        return EACH[self.data]

    @property
    def key(self) -> str:
        """Its name in the file of settings."""
        before = "" if self.data == "MNIST" else f"{self.data}/"
        return f"{before}{self.table}/{self.clients}/{self.split}/{self.epsilon:g}"


def noise_for(line: Line, rounds: int) -> float:
    """The least noise multiplier that keeps the line's ε in the worst case, all clients in every round."""
    return _calibrated(line.epsilon, line.delta, rounds)


@lru_cache
def _calibrated(epsilon: float, delta: float, rounds: int) -> float:
    return calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=1.0, steps=rounds, method="pld")


def chosen_settings(line: Line, path: Path = CHOSEN_SETTINGS) -> FederatedSettings:
    """What `research.tables.choose` found for the line. Raises DataMissing when it has not been run."""
    settings_by_line: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    if line.key not in settings_by_line:
        raise DataMissing(f"no settings yet: run python -m research.tables.choose --lines {line.key} first")
    return FederatedSettings(**settings_by_line[line.key]["settings"])


def _lines() -> tuple[Line, ...]:
    deltas = {100: 1e-3, 1000: 1e-5, 10_000: 1e-6}
    # Table, split, clients; accuracy without privacy, DP, BDP; ε of DP and BDP; the goal at the first.
    printed = (
        ("I", "shards", 100, (97, 78, 88), (8, 4.0), (91, 88)),
        ("I", "shards", 1000, (98, 95, 96), (3, 1.5), (96, 97)),
        ("I", "shards", 10_000, (99, 96, 97), (1, 0.6), (97, None)),
        ("II", "iid", 100, (97, 86, 92), (8, 2.0), (94, None)),
        ("II", "iid", 1000, (98, 97, 97), (3, 1.0), (97, None)),
        ("II", "iid", 10_000, (99, 97, 98), (1, 0.5), (98, None)),
    )
    lines: list[Line] = []
    for table, split, clients, accuracy, epsilons, goals in printed:
        papers = _papers(table, accuracy, epsilons, deltas[clients])
        for against, epsilon, goal in zip(("DP", "BDP"), epsilons, goals, strict=True):
            lines.append(Line(table, clients, epsilon, deltas[clients], split, papers, against, goal))
    # What the papers claim of a record is 0.1, Bayesian. Here it is at most this in the worst case.
    for split, accuracy, epsilon, instance in (("iid", (97, 15, 74), 2, 0.044), ("shards", (97, 12, 62), 4, 0.030)):
        papers = _papers("IV", accuracy, (epsilon, epsilon), 1e-3)
        lines.append(Line("IV", 100, epsilon, 1e-3, split, papers, "both", 86, instance))
    return tuple(lines)


def _papers(table: str, accuracy: tuple[float, ...], epsilons: tuple[float, ...], delta: float) -> Papers:
    columns = ("without privacy", "DP", "BDP")
    return Papers(
        f"{PAPER}, Table {table}",
        dict(zip(columns, accuracy, strict=True)),
        dict(zip(columns[1:], epsilons, strict=True)),
        delta,
    )


LINES = _lines()

# Beside Table III, whose pictures are not here; no number of the papers belongs to it.
PNEUMONIA = Line("III", 100, 8, 1e-3, "iid", Papers("", {}, {}, 1e-3), "", data="PneumoniaMNIST")
APTOS = tuple(
    Line(
        *("III", clients, epsilons[0], delta, "iid", _papers("III", accuracy, epsilons, delta), "DP"),
        data="APTOS",
    )
    for clients, accuracy, epsilons, delta in (
        (100, (70, 60, 65), (8, 2.1), 1e-3),
        (1000, (71, 67, 68), (2, 0.5), 1e-5),
        (10_000, (72, 68, 69), (1, 0.2), 1e-6),
    )
)
APTOS_BOTH = Line("IV", 100, 1, 1e-3, "iid", _papers("IV", (70, 42, 64), (1, 1), 1e-3), "both", data="APTOS")
