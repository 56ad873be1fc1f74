"""Steps within a limit by the best fixed Rényi order and by the loss distribution of the plan, by two accountants.

    python -m research.enforcement.table [--out research/benchmarks/results/enforcement_table.json]

Ours takes the errors of rounding and sampling off δ. The other one is dp-accounting, with continuous noise: its loss
distributions on a grid of 1e-4, its Rényi divergences at the orders below.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from accounting.accountants.calibration import most_steps
from research.enforcement.whole_plan import WholePlan

# q, σ, the ε of each limit, δ
ROWS = (
    (0.1, 2.0, (1.0, 2.0, 4.0), 1e-5),
    (0.01, 1.0, (1.0, 2.0, 8.0), 1e-5),
    (1.0, 20.0, (1.0, 2.0, 8.0), 1e-5),
    # The demonstration.
    (1.0, 10.43, (2.0,), 1e-4),
)
GRID = 1e-4
ORDERS = np.concatenate([1 + np.geomspace(0.05, 60, 300), np.geomspace(62, 4000, 120).round()])
AT_MOST = 100_000


@dataclass(frozen=True)
class Row:
    """Steps within one limit. `peer_` numbers are those of dp-accounting."""

    rate: float
    noise: float
    epsilon: float
    delta: float
    renyi: int
    peer_renyi: int
    losses: int
    peer_losses: int

    @property
    def gain(self) -> float:
        """More steps by loss distributions, as a share of those by Rényi divergences."""
        return self.losses / self.renyi - 1 if self.renyi else math.inf


def peer_epsilon(
    make: Callable[[], dp_accounting.PrivacyAccountant], noise: float, rate: float, count: int, delta: float
) -> float:
    """ε by an accountant of dp-accounting."""
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return float(make().compose(step, count).get_epsilon(delta))


def row(rate: float, noise: float, epsilon: float, delta: float) -> Row:
    """Count the steps of each way by bisection."""
    by_losses = partial(PLDAccountant, value_discretization_interval=GRID)
    by_moments = partial(RdpAccountant, orders=ORDERS.tolist())
    ways: dict[str, Callable[[int], float]] = {
        "renyi": lambda count: WholePlan(noise, rate, count).renyi(delta),
        "peer_renyi": lambda count: peer_epsilon(by_moments, noise, rate, count, delta),
        "losses": lambda count: WholePlan(noise, rate, count).epsilon(delta),
        "peer_losses": lambda count: peer_epsilon(by_losses, noise, rate, count, delta),
    }
    counts = {
        name: most_steps(epsilon=epsilon, delta=delta, account=way, at_most=AT_MOST) for name, way in ways.items()
    }
    return Row(rate, noise, epsilon, delta, **counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"{'q':>5} {'σ':>6} {'ε':>3} {'δ':>6} {'Rényi':>8} {'peer':>8} {'losses':>8} {'peer':>8} {'gain':>9}")
    rows: list[Row] = []
    for rate, noise, epsilons, delta in ROWS:
        for epsilon in epsilons:
            found = row(rate, noise, epsilon, delta)
            rows.append(found)
            print(
                f"{rate:5g} {noise:6g} {epsilon:3g} {delta:6g} {found.renyi:8,} {found.peer_renyi:8,} "
                f"{found.losses:8,} {found.peer_losses:8,} {found.gain:9.0%}",
                flush=True,
            )
    if options.out is not None:
        result = {"dp-accounting": version("dp_accounting"), "grid": GRID, "rows": [asdict(found) for found in rows]}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
