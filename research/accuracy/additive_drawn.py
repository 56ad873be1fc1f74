"""Where task additive is offered and loses: areas on drawn tables that no constant was chosen on.

    python -m research.accuracy.additive_drawn [--seeds 4]

Each table has 30,000 patients, of whom 3,000 at ε 2 and 10,000 at ε 1 train, by the settings of `--suggest` in scheme
`sequential`. Its columns are ranges from the 0.1st to the 99.9th percentile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from research.accuracy.additive import AdditiveTable, Loaded, line, measured
from research.accuracy.defaults_tables import Floats

PATIENTS = 30_000
STUDIES = ((6, 500, 2.0), (10, 1000, 1.0))


@dataclass(frozen=True)
class DrawnTable:
    """correlation: of any two columns. score: log-odds of (patients, columns) standard normal numbers.

    cells_of: what the columns hold of them.
    """

    name: str
    columns: int
    correlation: float
    score: Callable[[Floats], Floats]
    cells_of: Callable[[Floats], Floats] = lambda numbers: numbers


def _of(*weights: float) -> Callable[[Floats], Floats]:
    return lambda numbers: numbers @ np.array(weights)


_FEW = _of(1, 0.5, -0.5, 0.3, 0, 0, 0, 0.4)
TABLES = (
    DrawnTable("linear", 10, 0.0, _of(*np.linspace(-0.8, 0.8, 10))),
    DrawnTable("linear, ρ .9", 10, 0.9, _of(*[0.3] * 10)),
    DrawnTable("contrasts, ρ .9", 10, 0.9, _of(1.5, -1.5, 1, -1, *[0] * 6)),
    DrawnTable("linear, 8 % ill", 8, 0.5, lambda x: -3.6 + _of(0.8, 0.5, 0.3, 0, 0, 0, 0, 0.6)(x)),
    DrawnTable("log-normal", 8, 0.3, _FEW, np.exp),
    DrawnTable("u-shaped", 8, 0.3, lambda x: x[:, 0] ** 2 - 1 + np.abs(x[:, 1]) - 0.8 + 0.5 * x[:, 2]),
)


def draw(table: DrawnTable) -> tuple[dict[str, str], Loaded]:
    """Return the columns as they are declared, and the table."""
    random = np.random.default_rng(0)
    common = random.standard_normal((PATIENTS, 1))
    unique = random.standard_normal((PATIENTS, table.columns))
    numbers = np.sqrt(1 - table.correlation) * unique + np.sqrt(table.correlation) * common
    ill = random.uniform(size=PATIENTS) < 1 / (1 + np.exp(-table.score(numbers)))
    cells = table.cells_of(numbers)
    ends = zip(*np.quantile(cells, (0.001, 0.999), axis=0), strict=True)
    described = {f"x{at}": f"{low:.4g}..{high:.4g}" for at, (low, high) in enumerate(ends)}
    return described, ({name: cells[:, at] for at, name in enumerate(described)}, ill.astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = parser.parse_args().seeds
    for table in TABLES:
        described, loaded = draw(table)
        for hospitals, records, epsilon in STUDIES:
            dealt = AdditiveTable(table.name, described, lambda loaded=loaded: loaded, hospitals, records)
            sys.stdout.write(line(measured(dealt, epsilon, seeds, None, typical=False)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
