"""How long `wardround plan` computes for a study of 10,000 steps, beside dp-accounting's own calibration.

    python -m research.benchmarks.planning [--repeats 5]

Forecast (with the privacy-loss distribution), least noise and most rounds of one plan, by each rule that keeps a
limit, and the least noise by dp-accounting: Rényi divergences at its default orders, and privacy-loss distributions at
its default grid. All to the same relative tolerance, in turn, in this process, each the median of its repeats. "ratio"
is to dp-accounting's calibration by the same accountant: Rényi for one order, loss distributions for a fixed plan. A
sum of squares has all records in every round, and dp-accounting's loss distributions calibrate the same. Caches are
emptied before each. Results go to research/benchmarks/results/planning.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from accounting import Definition, Level, LimitPlan, Observer, Plan, forecast, least_noise, most_rounds

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


FIXED = replace(PLAN, limits=(replace(PLAN.limits[0], enforcement="fixed-plan"),))
FULL = replace(
    PLAN,
    limits=(replace(PLAN.limits[0], enforcement="gaussian-filter"),),
    sampling_rate=1.0,
    noise_multiplier=200.0,
)


def _theirs(make: Callable[[], dp_accounting.PrivacyAccountant], rate: float = RATE) -> float:
    def event(noise: float) -> dp_accounting.DpEvent:
        step = dp_accounting.GaussianDpEvent(noise)
        if rate < 1:
            step = dp_accounting.PoissonSampledDpEvent(rate, step)
        return dp_accounting.SelfComposedDpEvent(step, STEPS)

    bracket = dp_accounting.ExplicitBracketInterval(*((0.3, 20.0) if rate < 1 else (50.0, 500.0)))
    return dp_accounting.calibrate_dp_mechanism(make, event, EPSILON, DELTA, bracket, tol=TOLERANCE)


RENYI, LOSSES, ALL_RECORDS = "dp-accounting, Rényi", "dp-accounting, PLD", "dp-accounting, PLD, all records"


@dataclass(frozen=True)
class PlanningWay:
    """One way to a number, and the calibration of dp-accounting that its time is compared with."""

    name: str
    compute: Callable[[], float]
    base: str


def _ways_of(rule: str, plan: Plan, base: str) -> list[PlanningWay]:
    return [
        PlanningWay(f"{rule}: forecast", lambda: forecast(plan).limits[0].enforced, base),
        PlanningWay(f"{rule}: least noise", lambda: least_noise(plan).noise_multiplier, base),
        PlanningWay(f"{rule}: most rounds", lambda: float(most_rounds(plan).max_steps), base),
    ]


WAYS = (
    *_ways_of("one order", PLAN, RENYI),
    *_ways_of("fixed plan", FIXED, LOSSES),
    *_ways_of("sum of squares", FULL, ALL_RECORDS),
    PlanningWay(RENYI, lambda: _theirs(RdpAccountant), RENYI),
    PlanningWay(LOSSES, lambda: _theirs(PLDAccountant), LOSSES),
    PlanningWay(ALL_RECORDS, lambda: _theirs(PLDAccountant, 1.0), ALL_RECORDS),
)


def _empty_caches() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("accounting.")]
    for cached in (value for module in modules for value in vars(module).values() if hasattr(value, "cache_clear")):
        cached.cache_clear()


def report(repeats: int) -> dict[str, Any]:
    timings: dict[str, list[float]] = {way.name: [] for way in WAYS}
    answers: dict[str, float] = {}
    for _ in range(repeats):
        for way in WAYS:
            _empty_caches()
            started = time.perf_counter()
            answers[way.name] = way.compute()
            timings[way.name].append(time.perf_counter() - started)
    seconds = {name: statistics.median(times) for name, times in timings.items()}
    rows = [
        {
            "what": way.name,
            "seconds": seconds[way.name],
            "ratio": seconds[way.name] / seconds[way.base],
            "answer": answers[way.name],
        }
        for way in WAYS
    ]
    for row in rows:
        print(f"{row['what']:32} {row['seconds']:8.3f} s {row['ratio']:8.3f}   {row['answer']:.6g}")
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return {**machine, "dp-accounting": version("dp_accounting"), "steps": STEPS, "repeats": repeats, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Planning a study of 10,000 steps, beside dp-accounting.")
    parser.add_argument("--repeats", type=int, default=5)
    results = report(parser.parse_args().repeats)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
