"""What accounting costs, as ratios in one process: python -m research.benchmarks.accounting_speed

Every ratio is the median over pairs run in turn, in processor seconds of one thread: set OMP_NUM_THREADS=1. Absolute
times are printed beside them and mean little on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import gammaln, logsumexp

from accounting import BayesianAccountant, BayesianSpec, ClassicalAccountant, log_moment
from accounting.values import FloatArray

RESULTS = Path(__file__).parent / "results" / "accounting_speed.json"
ORDERS = np.arange(1.0, 65.0)
REAL_ORDERS = np.geomspace(0.5, 63.5, 64)
STD, RATE = 1.1, 0.01


def seconds(call: Callable[[], Any]) -> float:
    """Processor time of one call: waiting for other programs does not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def paired(ours: Callable[[int], Any], theirs: Callable[[int], Any], repeats: int) -> dict[str, float]:
    """Medians of both times and of theirs/ours, pair by pair; the calls get the repetition's number."""
    pairs = [(seconds(lambda i=i: ours(i)), seconds(lambda i=i: theirs(i))) for i in range(repeats)]
    return {
        "ours, seconds": statistics.median(ours_seconds for ours_seconds, _ in pairs),
        "other, seconds": statistics.median(peer_seconds for _, peer_seconds in pairs),
        "ratio": statistics.median(peer_seconds / ours_seconds for ours_seconds, peer_seconds in pairs),
    }


def authors_formula(distance: float) -> list[float]:
    """Theorem 3, one record at a time: log E_{k ~ Bin(λ+1, q)} exp((k² − k) d²/2s²) for every order."""
    costs = []
    for order in ORDERS:
        k = np.arange(order + 2)
        n = order + 1
        log_binomial = (
            gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + k * np.log(RATE) + (n - k) * np.log1p(-RATE)
        )
        costs.append(float(logsumexp(log_binomial + (k * k - k) * distance**2 / (2 * STD**2))))
    return costs


def records(repeats: int) -> dict[str, dict[str, float]]:
    """φ of 10⁶ records at 64 orders, table warm, against slower paths scaled up from fewer records."""
    rng = np.random.default_rng(0)
    large_sample = np.minimum(rng.weibull(0.7, 1_000_000) / 2, 1.0)
    medium_sample, fewer = large_sample[:5_000], large_sample[:200]
    for orders in (ORDERS, REAL_ORDERS):
        log_moment(orders, large_sample, noise_std=STD, sampling_rate=RATE)

    def moments(orders: FloatArray, distances: FloatArray, method: Literal["table", "exact"]) -> Callable[[int], Any]:
        return lambda _: log_moment(orders, distances, noise_std=STD, sampling_rate=RATE, method=method)

    def one_by_one(_: int) -> None:
        for distance in fewer:
            authors_formula(float(distance))

    rows = {
        "integer orders, exact path": (ORDERS, moments(ORDERS, medium_sample, "exact"), medium_sample.size),
        "real orders, exact path": (REAL_ORDERS, moments(REAL_ORDERS, medium_sample, "exact"), medium_sample.size),
        "integer orders, authors' formula record by record": (ORDERS, one_by_one, fewer.size),
    }
    workload_rows = {}
    for name, (orders, call, size) in rows.items():
        row, scale = paired(moments(orders, large_sample, "table"), call, repeats), large_sample.size / size
        workload_rows[f"10^6 records x 64 {name}"] = row | {
            "other, seconds": row["other, seconds"] * scale,
            "ratio": row["ratio"] * scale,
        }
    return workload_rows


def late_steps(repeats: int) -> dict[str, dict[str, float]]:
    """One more step, and one query, after 10,000 steps against after 10."""
    distances = np.random.default_rng(1).beta(2, 5, size=1000)

    def classical(steps: int, method: str) -> ClassicalAccountant:
        account = ClassicalAccountant(delta=1e-5, method="pld" if method == "pld" else "rdp")
        for _ in range(steps):
            account.step(noise_multiplier=STD, sampling_rate=RATE)
        account.epsilon()
        return account

    def running(steps: int) -> BayesianAccountant:
        spec = BayesianSpec(
            orders=[4.0, 8.0, 16.0],
            delta=1e-5,
            estimator_failure_probability=1e-6,
            composition="running",
            estimator="betting",
        )
        account = BayesianAccountant(spec)
        for _ in range(steps):
            account.step(distances, noise_std=STD, sampling_rate=RATE, max_distance=1.0)
        return account

    rows = {}
    for name, build in (
        ("classical RDP", lambda n: classical(n, "rdp")),
        ("classical PLD", lambda n: classical(n, "pld")),
        ("Bayesian, running sums", running),
    ):
        early, late = build(10), build(10_000)
        more: dict[str, Any] = {"noise_std": STD, "max_distance": 1.0, "distances": distances}
        step = {"noise_multiplier": STD} if isinstance(early, ClassicalAccountant) else more

        def add(account: Any, step: dict[str, Any] = step) -> None:
            for _ in range(20):
                account.step(sampling_rate=RATE, **step)

        def ask(account: Any, step: dict[str, Any] = step) -> None:
            account.step(sampling_rate=RATE, **step)
            account.epsilon()

        rows[f"{name}: step 10,000 against step 10"] = paired(
            lambda _, a=late: add(a), lambda _, a=early: add(a), repeats
        )
        rows[f"{name}: step and query after 10,000 steps against after 10"] = paired(
            lambda _, a=late: ask(a), lambda _, a=early: ask(a), repeats
        )
    return rows


def against_prv(repeats: int) -> dict[str, dict[str, float]]:
    """A fresh classical ε for 10,000 steps; the noise differs a little each time, so nothing is remembered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant

    def ours(i: int, method: str) -> None:
        account = ClassicalAccountant(delta=1e-5, method="pld" if method == "pld" else "rdp")
        tolerance = 0.0 if method == "pld" else 3e-5
        account.step(noise_multiplier=STD + 1e-4 * i + tolerance, sampling_rate=RATE, count=10_000)
        account.epsilon()

    def prv(i: int) -> None:
        account = PRVAccountant()
        account.history = [(STD + 1e-4 * i, RATE, 10_000)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            account.get_epsilon(1e-5)

    ours(-1, "pld")
    prv(-1)
    return {
        f"classical {name}, 10,000 steps, against Opacus PRV": paired(lambda i, m=method: ours(i, m), prv, repeats)
        for name, method in (("PLD", "pld"), ("RDP", "rdp"))
    }


def main() -> None:
    """Print the ratios and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = records(arguments.repeats) | late_steps(arguments.repeats) | against_prv(arguments.repeats)
    for name, row in rows.items():
        print(f"{name:70} ours {row['ours, seconds']:.3g} s  other {row['other, seconds']:.3g} s  x {row['ratio']:.3g}")
    about = {name: version(name) for name in ("numpy", "scipy", "opacus", "dp-accounting")}
    result = {
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "versions": about,
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
