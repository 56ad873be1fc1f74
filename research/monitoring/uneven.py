"""False alarms of calibrated models whose predictions are not evenly spread within the bins of the question.

    python -m research.monitoring.uneven [--runs 2000] [--epsilon 0.25] [--patients 4000]

The derivatives of slope and calibration in the large take logits as evenly spread within a bin. Here every model is
right, and its predictions lie at the ends of the bins, where that is most off, or far apart. Every line has its seed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from research.monitoring.power import EDGES, WEIGHT, Windows, answered, monitoring, noise_for
from study_protocol.queries.evaluation.calibration import Recalibration
from study_protocol.study.control_chart import alarms_of

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
WINDOWS = 4
SHARES = (0.3, 0.25, 0.2, 0.2, 0.05)


def of_values(*values: float, shares: Sequence[float] = SHARES) -> Draw:
    return lambda draw, patients: draw.choice(values, patients, p=shares)


UPPER, LOWER = (*(end - 1e-6 for end in EDGES), 0.95), (0.001, *EDGES)
CASES: dict[str, Draw] = {
    "upper ends": of_values(*UPPER),
    "lower ends": of_values(*LOWER),
    "half upper, half lower ends": of_values(*UPPER, *LOWER, shares=[share / 2 for share in (*SHARES, *SHARES)]),
    "0.22 and 0.45, lower ends": of_values(0.22, 0.45, shares=(0.7, 0.3)),
    "0.04 and 0.45, upper ends": of_values(0.04 - 1e-6, 0.45 - 1e-6, shares=(0.8, 0.2)),
    "0.1 and 0.22, upper ends": of_values(0.1 - 1e-6, 0.22 - 1e-6, shares=(0.5, 0.5)),
    "0.02 and 0.95": of_values(0.02, 0.95, shares=(0.8, 0.2)),
    "Beta(0.3, 1.5)": lambda draw, patients: draw.beta(0.3, 1.5, patients),
}


def false_alarms(name: str, runs: int, patients: int, noise: float, seed: int) -> Floats:
    """Return the years with an alarm, of `runs`, against slope 1 and against the first window, shape (2,)."""
    draw, rules = np.random.default_rng(seed), [monitoring("calibrated"), monitoring("first-window")]
    question = Recalibration(WEIGHT, 0.2, (0.0, *EDGES, 1.0))
    std, alarmed = noise * math.sqrt(1 + WEIGHT**2), np.zeros(2)
    for _ in range(runs):
        windows = {}
        for number in range(1, WINDOWS + 1):
            p = CASES[name](draw, patients)
            outcome = (draw.random(patients) < p).astype(float)
            windows[number] = answered(question, p, outcome, std, draw)
        alarmed += [bool(alarms_of(rule, windows)) for rule in rules]
    return alarmed


def line(name: str, runs: int, patients: int, noise: float, seed: int) -> str:
    first, second = 100 * false_alarms(name, runs, patients, noise, seed) / runs
    return f"| {name} | {first:.1f} | {second:.1f} |"


def miscalibrated(runs: int, patients: int, noise: float, slope: float, shift: float, seed: int) -> float:
    """Return the share of years with an alarm against the first window, of a model that is off alike all the time."""
    windows, rule = Windows(0.2, 0.85, patients, noise, seed), monitoring("first-window")
    intercept = windows.intercept(slope) + shift
    years = ({number: windows.figures(slope, intercept) for number in range(1, WINDOWS + 1)} for _ in range(runs))
    return sum(bool(alarms_of(rule, year)) for year in years) / runs


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
    print("| slope, intercept of a model that does not drift | first-window % |")
    for seed, (slope, shift) in enumerate([(0.7, 0.0), (0.7, -0.7)]):
        share = miscalibrated(options.runs, options.patients, noise, slope, shift, seed)
        print(f"| {slope}, {shift} | {100 * share:.1f} |", flush=True)


if __name__ == "__main__":
    main()
