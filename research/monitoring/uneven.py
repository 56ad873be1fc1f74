"""False alarms of calibrated models whose predictions are not evenly spread within the bins of the question.

    python -m research.monitoring.uneven [--runs 2000] [--epsilon 0.25] [--patients 4000]

The errors of slope and calibration in the large take logits as evenly spread within a bin. Here every model is right,
and its predictions lie at the ends of the bins, where the error is most off, or far apart. Every line has its seed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from research.monitoring.power import EDGES, WEIGHT, figure_of, monitoring, noise_for
from study_protocol.queries.evaluation.calibration import IN_THE_LARGE, SLOPE, Recalibration
from study_protocol.study.control_chart import alarms_of

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
WINDOWS = 4
SHARES = (0.3, 0.25, 0.2, 0.2, 0.05)


def of_values(*values: float) -> Draw:
    return lambda draw, patients: draw.choice(values, patients, p=SHARES)


CASES: dict[str, Draw] = {
    "upper ends": of_values(*(end - 1e-6 for end in EDGES), 0.95),
    "lower ends": of_values(0.001, *EDGES),
    "Beta(0.3, 1.5)": lambda draw, patients: draw.beta(0.3, 1.5, patients),
}


def line(name: str, runs: int, patients: int, noise: float, seed: int) -> str:
    draw, rules = np.random.default_rng(seed), [monitoring("calibrated"), monitoring("first-window")]
    question, bins = Recalibration(WEIGHT, 0.2, (0.0, *EDGES, 1.0)), len(EDGES) + 1
    std, alarmed = noise * math.sqrt(1 + WEIGHT**2), np.zeros(2)
    for _ in range(runs):
        windows = {}
        for number in range(1, WINDOWS + 1):
            p = CASES[name](draw, patients)
            sums = question.vectors(p, (draw.random(patients) < p).astype(float)).sum(axis=0)
            counts = np.bincount(np.searchsorted(EDGES, p, side="right"), minlength=bins)
            noised = counts + std * draw.standard_normal((2, bins)).sum(axis=0)
            sums = sums + std * draw.standard_normal(2)
            estimates = question.read(sums, std**2, noised, 2 * std**2 * np.eye(bins))
            windows[number] = {each: figure_of(estimates, place) for place, each in enumerate((SLOPE, IN_THE_LARGE))}
        alarmed += [bool(alarms_of(rule, windows)) for rule in rules]
    first, second = 100 * alarmed / runs
    return f"| {name} | {first:.1f} | {second:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=0.25)
    parser.add_argument("--patients", type=int, default=4000)
    options = parser.parse_args()
    noise = noise_for(options.epsilon)
    print("| predictions | false alarms a year, calibrated % | first-window % |")
    for seed, name in enumerate(CASES):
        print(line(name, options.runs, options.patients, noise, seed), flush=True)


if __name__ == "__main__":
    main()
