"""Steps within a limit by the best fixed Rényi order and by the tightest rule, beside another accountant.

    python -m research.enforcement.table [--out research/benchmarks/results/enforcement_table.json]

Ours are the steps that `wardround plan --solve rounds` finds, with the errors of rounding and sampling taken off δ. The
peer is dp-accounting, with continuous noise and nothing taken off: its loss distributions on a grid of 1e-4, and its
Rényi divergences at the orders below.
"""

from __future__ import annotations

import argparse
import json
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
from accounting.budget.enforcement import tightest
from accounting.budget.solve import most_rounds
from research.enforcement.plans import study_plan

# q, σ, the ε of each limit, δ
ROWS = (
    (0.1, 2.0, (1.0, 2.0, 4.0), 1e-5),
    (0.01, 1.0, (1.0, 2.0, 8.0), 1e-5),
    (1.0, 20.0, (1.0, 2.0, 8.0), 1e-5),
    # The demonstration.
    (1.0, 10.43, (2.0,), 1e-4),
)
GRID = 1e-4
ORDERS = np.concatenate([1 + np.geomspace(0.05, 60, 300), np.geomspace(62, 4000, 120).round()]).tolist()
AT_MOST = 100_000


@dataclass(frozen=True)
class EnforcementRow:
    """Steps within one limit. rule: the tightest. `peer_` numbers are those of dp-accounting."""

    rate: float
    noise: float
    epsilon: float
    delta: float
    rule: str
    renyi: int
    tight: int
    peer_renyi: int
    peer_losses: int

    @property
    def gain(self) -> float:
        """More steps by the tightest rule, as a share of those at the best fixed order."""
        return self.tight / self.renyi - 1


def peer_steps(
    make: Callable[[], dp_accounting.PrivacyAccountant], noise: float, rate: float, epsilon: float, delta: float
) -> int:
    """Most steps within the limit, by an accountant of dp-accounting."""
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))

    def spent(count: int) -> float:
        return float(make().compose(step, count).get_epsilon(delta))

    return most_steps(epsilon=epsilon, delta=delta, account=spent, at_most=AT_MOST)


def row(rate: float, noise: float, epsilon: float, delta: float) -> EnforcementRow:
    """Count the steps of each way by bisection."""
    plan = study_plan(noise=noise, rate=rate, count=1, epsilon=epsilon, delta=delta)
    tight = tightest(plan)
    by_losses = partial(PLDAccountant, value_discretization_interval=GRID)
    by_moments = partial(RdpAccountant, orders=ORDERS)
    return EnforcementRow(
        rate=rate,
        noise=noise,
        epsilon=epsilon,
        delta=delta,
        rule=str(tight.limits[0].enforcement),
        renyi=most_rounds(plan).max_steps,
        tight=most_rounds(tight).max_steps,
        peer_renyi=peer_steps(by_moments, noise, rate, epsilon, delta),
        peer_losses=peer_steps(by_losses, noise, rate, epsilon, delta),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(
        f"{'q':>5} {'σ':>6} {'ε':>3} {'δ':>6} {'rule':16} {'Rényi':>7} {'peer':>7} {'tight':>7} {'peer':>7} {'gain':>7}"
    )
    rows: list[EnforcementRow] = []
    for rate, noise, epsilons, delta in ROWS:
        for epsilon in epsilons:
            line = row(rate, noise, epsilon, delta)
            rows.append(line)
            print(
                f"{rate:5g} {noise:6g} {epsilon:3g} {delta:6g} {line.rule:16} {line.renyi:7,} {line.peer_renyi:7,} "
                f"{line.tight:7,} {line.peer_losses:7,} {line.gain:7.0%}",
                flush=True,
            )
    if options.out is not None:
        result = {"dp-accounting": version("dp_accounting"), "grid": GRID, "rows": [asdict(line) for line in rows]}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
