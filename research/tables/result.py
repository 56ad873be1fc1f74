"""One line of a table: what the papers print, what was reached, and every reading of its ε. Kept as JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path("research/benchmarks/results/tables")
_VERSIONS = ("numpy", "scipy", "torch", "scikit-learn")


@dataclass(frozen=True)
class Papers:
    """What the papers print. accuracy: per cent, by column ("without privacy", "DP", "BDP"); epsilon likewise.

    source: the paper and its table.
    """

    source: str
    accuracy: Mapping[str, float]
    epsilon: Mapping[str, float]
    delta: float


@dataclass(frozen=True)
class EpsilonReading:
    """One reading of ε. kind: a key of `page.KINDS`; None: infinite, or no finite number by this formula.

    level  "client" or "instance"
    how    estimator, composition, relation: what a reader needs to know what the number claims
    """

    kind: str
    level: str
    epsilon: float | None
    delta: float
    how: str


@dataclass(frozen=True)
class Row:
    """One line. accuracies: per seed, the share of test records named rightly; without_noise: the same steps.

    split     how records were dealt to clients, in words
    settings  everything that a run needs, as JSON
    found_by  the command that found the settings, and on which records
    notes     what a reader must know beside the numbers
    """

    table: str
    name: str
    data: str
    papers: Papers
    split: str
    seeds: Sequence[int]
    accuracies: Sequence[float]
    spent: Sequence[EpsilonReading]
    settings: Mapping[str, Any]
    found_by: str
    clients: int | None = None
    goal: float | None = None
    without_noise: Sequence[float] = ()
    notes: Sequence[str] = ()
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=lambda: _versions())

    def __post_init__(self) -> None:
        if len(self.seeds) != len(self.accuracies) or not self.seeds:
            raise ValueError(f"{len(self.seeds)} seeds with {len(self.accuracies)} accuracies")

    @property
    def mean(self) -> float:
        """Per cent."""
        return 100 * sum(self.accuracies) / len(self.accuracies)

    @property
    def error(self) -> float:
        """Standard error over seeds in percentage points; NaN for one seed."""
        return standard_error(self.accuracies)

    @property
    def file(self) -> str:
        """Its file's name in `RESULTS`."""
        file_name = f"{self.table}-{self.name}".lower().replace("ε", "epsilon")
        words = "".join(c if c.isalnum() or c == "." else "-" for c in file_name)
        return "-".join(part for part in words.split("-") if part) + ".json"


def standard_error(shares: Sequence[float]) -> float:
    """Of the mean of shares, in percentage points."""
    if len(shares) < 2:
        return math.nan
    mean = sum(shares) / len(shares)
    return 100 * math.sqrt(sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) / len(shares))


def write(row: Row, folder: Path = RESULTS) -> Path:
    """Replace the line's file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / row.file
    path.write_text(json.dumps(asdict(row), indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read(folder: Path = RESULTS) -> list[Row]:
    """All lines, by file name."""
    return [_row(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]


def _row(values: dict[str, Any]) -> Row:
    parts = {"papers": Papers(**values["papers"]), "spent": [EpsilonReading(**each) for each in values["spent"]]}
    return Row(**values | parts)


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}}
