"""How long `wardround plan` computes for a study of 10,000 steps, beside dp-accounting's own calibration.

    python -m research.benchmarks.planning [--repeats 5]

Forecast (with the privacy-loss distribution), least noise and most rounds of one plan, at one Rényi order and ("tight")
by the whole plan's loss distribution. Beside them the least noise by dp-accounting: Rényi divergences at its default
orders, and privacy-loss distributions at its default grid. All to the same relative tolerance, in turn, in this
process, each the median of its repeats; "ratio" is to dp-accounting's Rényi calibration. Caches are emptied before
each. Results go to research/benchmarks/results/planning.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from accounting import Definition, Level, LimitPlan, Observer, Plan, forecast, least_noise, most_rounds
from accounting.accountants import renyi
from accounting.budget.accounts import losses
from accounting.budget.enforcement import tightest

RESULTS = Path(__file__).parent / "results" / "planning.json"
EPSILON, DELTA, RATE, STEPS, TOLERANCE = 4.0, 1e-5, 0.01, 10_000, 1e-3

PLAN = Plan(
    scheme="parallel",
    limits=(LimitPlan(Level.INSTANCE, Definition.CLASSICAL, EPSILON, DELTA, None),),
    clip_norm=1.0,
    client_clip_norm=None,
    noise_multiplier=2.0,
    honest_survivors=1,
    sampling_rate=RATE,
    steps_per_round=1,
    max_steps=STEPS,
    classical_order=8.0,
    bayesian=None,
    disclosure="at-end",
    release=None,
    observer=Observer.COORDINATOR,
)
TIGHT = tightest(PLAN)


def _theirs(make: Callable[[], dp_accounting.PrivacyAccountant]) -> float:
    def event(noise: float) -> dp_accounting.DpEvent:
        step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(step, STEPS)

    bracket = dp_accounting.ExplicitBracketInterval(0.3, 20.0)
    return dp_accounting.calibrate_dp_mechanism(make, event, EPSILON, DELTA, bracket, tol=TOLERANCE)


WAYS: dict[str, Callable[[], float]] = {
    "forecast": lambda: forecast(PLAN).limits[0].enforced,
    "least noise": lambda: least_noise(PLAN).noise_multiplier,
    "most rounds": lambda: float(most_rounds(PLAN).max_steps),
    "least noise, tight": lambda: least_noise(TIGHT).noise_multiplier,
    "most rounds, tight": lambda: float(most_rounds(TIGHT).max_steps),
    "dp-accounting, Rényi": lambda: _theirs(RdpAccountant),
    "dp-accounting, PLD": lambda: _theirs(PLDAccountant),
}


def report(repeats: int) -> dict[str, Any]:
    timings: dict[str, list[float]] = {name: [] for name in WAYS}
    answers: dict[str, float] = {}
    for _ in range(repeats):
        for name, way in WAYS.items():
            renyi._curve.cache_clear()
            losses.epsilon_of_losses.cache_clear()
            started = time.perf_counter()
            answers[name] = way()
            timings[name].append(time.perf_counter() - started)
    base = statistics.median(timings["dp-accounting, Rényi"])
    rows = [
        {
            "what": name,
            "seconds": statistics.median(times),
            "ratio": statistics.median(times) / base,
            "answer": answers[name],
        }
        for name, times in timings.items()
    ]
    for row in rows:
        print(f"{row['what']:24} {row['seconds']:8.3f} s {row['ratio']:8.2f}   {row['answer']:.6g}")
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return {**machine, "dp-accounting": version("dp_accounting"), "steps": STEPS, "repeats": repeats, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Planning a study of 10,000 steps, beside dp-accounting.")
    parser.add_argument("--repeats", type=int, default=5)
    results = report(parser.parse_args().repeats)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
