"""How fast a cost is computed: the table against the exact path and against the papers' formula, record by record.

    python -m benchmarks.accounting_costs

Ratios of processor seconds within one run; a million records arrive in blocks of 100,000, as panels do. The exact path
and the papers' formula are timed on a part of the records and scaled up. `first` builds the table, `again` finds it.
Results go to benchmarks/results/accounting_costs.json.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.stats import binom

from accounting import BayesianAccountant, log_moment
from accounting.table import _table

RESULTS = Path(__file__).parent / "results" / "accounting_costs.json"
RECORDS, BLOCK, PART, ONE_BY_ONE = 1_000_000, 100_000, 20_000, 100
NOISE, RATE = 1.1, 0.01
ORDER_SETS = {
    "integers 1 to 64": np.arange(1.0, 65.0),
    "64 orders from 0.5 to 256, real and integer": np.unique(
        np.concatenate([np.arange(0.5, 8.5, 0.25), np.geomspace(9, 256, 32).round()])
    ),
}


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def papers_formula(orders: np.ndarray, distances: np.ndarray) -> None:
    """Theorem 3 as the authors evaluate it: one record and one order at a time, in linear space."""
    for distance in distances:
        for order in orders:
            k = np.arange(order + 2)
            # Linear space overflows at large distances, as theirs does.
            with np.errstate(over="ignore"):
                np.log(np.sum(binom.pmf(k, order + 1, RATE) * np.exp((k * k - k) * distance**2 / (2 * NOISE**2))))


def table(orders: np.ndarray, distances: np.ndarray) -> None:
    for start in range(0, distances.size, BLOCK):
        log_moment(orders, distances[start : start + BLOCK], noise_std=NOISE, sampling_rate=RATE, method="table")


def exact(orders: np.ndarray, distances: np.ndarray) -> None:
    log_moment(orders, distances, noise_std=NOISE, sampling_rate=RATE, method="exact")


def of_orders(orders: np.ndarray, distances: np.ndarray) -> dict[str, float]:
    _table.cache_clear()
    first, again = (seconds(lambda: table(orders, distances)) for _ in range(2))
    slow = seconds(lambda: exact(orders, distances[:PART])) * RECORDS / PART
    found = {"first_seconds": first, "again_seconds": again}
    found |= {"exact_over_first": slow / first, "exact_over_again": slow / again}
    if (orders == orders.round()).all():
        papers = seconds(lambda: papers_formula(orders, distances[:ONE_BY_ONE])) * RECORDS / ONE_BY_ONE
        found["papers_formula_over_first"] = papers / first
    return found


def of_steps() -> dict[str, float]:
    """Step 10,000 against step 10, and reading ε after each."""
    panel = np.random.default_rng(1).beta(1, 5, 500)
    account = BayesianAccountant(
        orders=np.arange(1.0, 17.0), delta=1e-5, failure=1e-6, horizon=20_000, estimator="band"
    )

    def steps(number: int) -> None:
        for _ in range(number):
            account.step(panel, noise_std=NOISE, sampling_rate=RATE, max_distance=1.0)

    steps(10)
    early, early_read = seconds(lambda: steps(20)), seconds(lambda: [account.epsilon() for _ in range(200)])
    for _ in range(9_970):
        account.step(None, noise_std=NOISE, sampling_rate=RATE, max_distance=1.0)
    late, late_read = seconds(lambda: steps(20)), seconds(lambda: [account.epsilon() for _ in range(200)])
    return {"step_10000_over_step_10": late / early, "epsilon_after_10000_over_after_10": late_read / early_read}


def main() -> None:
    distances = np.minimum(np.random.default_rng(0).weibull(0.5, RECORDS), 1.0)
    found = {name: of_orders(orders, distances) for name, orders in ORDER_SETS.items()}
    report = {"costs of a million records": found, "steps": of_steps()}
    where = {"machine": platform.machine(), "python": platform.python_version(), "numpy": version("numpy")}
    RESULTS.write_text(json.dumps(report | {"where": where}, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
