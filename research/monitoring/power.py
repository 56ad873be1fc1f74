"""The power and the false alarms of the control chart: simulated years of later patients, under the noise of a budget.

    python -m research.monitoring.power [--runs 1000] [--epsilon 0.25] [--patients 4000]

Predictions are normal on the logit scale, with the outcome rate and the AUC that a line states, and right until the
drift. Then the slope changes, and the outcome stays as frequent: calibration in the large does not help. A drift begins
with window 5 of 6 and is found if an alarm of windows 5 or 6 says so. False alarms are those of four windows, which are
a year, without a drift. Every line has a seed of its own.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms.gaussian_squares import epsilon_of_squares
from study_protocol.queries.counting import Estimates
from study_protocol.queries.evaluation.calibration import IN_THE_LARGE, SLOPE, Recalibration
from study_protocol.study.control_chart import WindowFigure, alarms_of
from study_protocol.study.monitoring import MonitoringSettings

DELTA = 1e-5
EDGES = (0.04, 0.1, 0.22, 0.45)
WEIGHT = 2.0
WINDOWS, DRIFTED = 6, 5
CASES = tuple((rate, area) for rate in (0.1, 0.2, 0.3) for area in (0.75, 0.85))
Floats = NDArray[np.float64]


def noise_for(epsilon: float) -> float:
    """Return the noise multiplier of one question at this ε and `DELTA`."""
    low, high = 0.1, 1000.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon_of_squares(middle**-2, DELTA) <= epsilon else (middle, high)
    return high


def sigmoid(logits: Floats) -> Floats:
    return 1 / (1 + np.exp(-logits))


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function is zero, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2


def logits_of(rate: float, area: float) -> tuple[float, float]:
    """Return mean and deviation of the logits of a model that is right, has this AUC, and predicts so many outcomes."""
    grid = np.linspace(-16, 12, 5601)
    p = sigmoid(grid)

    def law(mean: float, deviation: float) -> Floats:
        weights = np.exp(-(((grid - mean) / deviation) ** 2) / 2)
        return weights / weights.sum()

    def mean_for(deviation: float) -> float:
        return root(lambda mean: float(law(mean, deviation) @ p) - rate, -14.0, 8.0)

    def area_of(deviation: float) -> float:
        weights = law(mean_for(deviation), deviation)
        having, without = weights * p, weights * (1 - p)
        below = np.cumsum(without) - without / 2
        return float(having @ below / having.sum() / without.sum())

    deviation = root(lambda candidate: area_of(candidate) - area, 0.05, 6.0)
    return mean_for(deviation), deviation


class Windows:
    """Windows of patients of one case, asked under noise."""

    def __init__(self, rate: float, area: float, patients: int, noise: float, seed: int) -> None:
        self._mean, self._deviation = logits_of(rate, area)
        self._patients, self._draw = patients, np.random.default_rng(seed)
        self._question = Recalibration(WEIGHT, 1.5 * rate, (0.0, *EDGES, 1.0))
        self._std = noise * math.sqrt(1 + WEIGHT**2)
        grid = self._mean + self._deviation * np.linspace(-6, 6, 2001)
        self._grid, weights = grid, np.exp(-(((grid - self._mean) / self._deviation) ** 2) / 2)
        self._law = weights / weights.sum()

    def intercept(self, slope: float) -> float:
        """Return the intercept with which outcomes stay as frequent."""
        before = float(self._law @ sigmoid(self._grid))
        return root(lambda candidate: float(self._law @ sigmoid(candidate + slope * self._grid)) - before, -8.0, 8.0)

    def figures(self, slope: float, intercept: float) -> dict[str, WindowFigure]:
        logits = self._draw.normal(self._mean, self._deviation, self._patients)
        outcome = (self._draw.random(self._patients) < sigmoid(intercept + slope * logits)).astype(float)
        return answered(self._question, sigmoid(logits), outcome, self._std, self._draw)


def answered(
    question: Recalibration, p: Floats, outcome: Floats, std: float, draw: np.random.Generator
) -> dict[str, WindowFigure]:
    """Return the figures of one window. std: of the noise in every sum and count."""
    bins = len(question.ends) - 1
    sums = question.vectors(p, outcome).sum(axis=0) + std * draw.standard_normal(2)
    places = np.searchsorted(question.ends[1:-1], p, side="right") + bins * outcome.astype(int)
    counts = np.bincount(places, minlength=2 * bins).reshape(2, bins) + std * draw.standard_normal((2, bins))
    estimates = question.read(sums, std**2, counts, std**2 * np.eye(bins))
    return {name: figure_of(estimates, place) for place, name in enumerate((SLOPE, IN_THE_LARGE))}


def figure_of(estimates: Estimates, place: int) -> WindowFigure:
    value, noise, sampling = (
        float(part[place]) for part in (estimates.estimate, estimates.dp_error, estimates.sampling_error)
    )
    if math.isnan(value):
        return WindowFigure(None, None, None, None)
    return WindowFigure(value, math.hypot(noise, sampling), float(estimates.low[place]), float(estimates.high[place]))


def monitoring(reference: str) -> MonitoringSettings:
    question = {"noise_multiplier": 13.0, "edges": EDGES, "calibration": WEIGHT, "centre": 0.2}
    return MonitoringSettings.model_validate(
        {"column": "seen", "first_day": "2027-01-01", "windows": 40, "question": question, "reference": reference}
    )


def line(rate: float, area: float, runs: int, patients: int, noise: float, seed: int) -> str:
    windows, rules = Windows(rate, area, patients, noise, seed), [monitoring("calibrated"), monitoring("first-window")]
    falsely, alarmed = np.zeros(2), np.zeros((2, 2))
    covered, estimated, error = np.zeros(3), 0, [float("nan")]
    drifts = [(slope, windows.intercept(slope)) for slope in (0.8, 1.2)]
    for _ in range(runs):
        stable = {number: windows.figures(1.0, 0.0) for number in range(1, DRIFTED)}
        for figure in (each[SLOPE] for each in stable.values()):
            estimated += figure.estimate is not None
            error += [] if figure.error is None else [figure.error]
            covered[0] += figure.low is not None and figure.high is not None and figure.low <= 1 <= figure.high
        for place, rule in enumerate(rules):
            falsely[place] += bool(alarms_of(rule, stable))
        for drift, (slope, intercept) in enumerate(drifts):
            later = {number: windows.figures(slope, intercept) for number in range(DRIFTED, WINDOWS + 1)}
            for place, rule in enumerate(rules):
                alarmed[place, drift] += any(alarm.window >= DRIFTED for alarm in alarms_of(rule, stable | later))
    percent, rates = 100 * alarmed / runs, 100 * falsely / runs
    return (
        f"| {rate:.0%} | {area} | {np.nanmedian(error):.3f} | {100 * covered[0] / max(estimated, 1):.1f} "
        f"| {percent[0, 0]:.0f} / {percent[0, 1]:.0f} | {rates[0]:.1f} | {percent[1, 0]:.0f} / {percent[1, 1]:.0f} "
        f"| {rates[1]:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=0.25)
    parser.add_argument("--patients", type=int, default=4000)
    options = parser.parse_args()
    noise = noise_for(options.epsilon)
    print(f"noise multiplier {noise:.3f}, delta {DELTA:g}, {options.patients} patients a window, {options.runs} runs")
    names = ("outcome", "AUC", "error", "covered %", "found (.8 / 1.2) %", "false alarms %", "found, first window %")
    print(f"| {' | '.join((*names, 'false alarms, first window %'))} |")
    for seed, (rate, area) in enumerate(CASES):
        print(line(rate, area, options.runs, options.patients, noise, seed), flush=True)


if __name__ == "__main__":
    main()
