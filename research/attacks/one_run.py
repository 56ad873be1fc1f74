"""What the guesses of one run show of ε, and whether noise is too small: statistics of `research.attacks.audit`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

DELTA = 1e-5
# Of the canaries, guessed at each end.
GUESSED = 0.015
# An attack raises an alarm below this p-value. The two laws are exact, the one-run bound has much room.
ALARM_ONE_RUN, ALARM_LAW = 0.05, 1e-3
Floats = NDArray[np.float64]


def guessed(scores: Floats, inside: NDArray[np.bool_]) -> tuple[int, int]:
    """(guesses, right ones): the highest scores are said to be in, the lowest to be out."""
    guesses, order = round(GUESSED * len(scores)), np.argsort(scores)
    return 2 * guesses, int(inside[order[-guesses:]].sum() + (~inside[order[:guesses]]).sum())


def p_value(canaries: int, guesses: int, right: int, epsilon: float) -> float:
    """Bound on the probability of so many right guesses under (ε, DELTA)-DP (Theorem 5.2 and its Appendix D)."""
    chance = 1 / (1 + math.exp(-epsilon))
    beyond = float(stats.binom.sf(right - 1, guesses, chance))
    i = np.arange(1, right + 1)
    # P[right > X ≥ right − i], for every i.
    near = np.cumsum(stats.binom.pmf(right - i, guesses, chance))
    return min(1.0, beyond + 2 * canaries * DELTA * float(np.max(near / i, initial=0.0)))


def largest_refuted(canaries: int, guesses: int, right: int) -> float:
    """The largest ε, to two digits, at which the guesses would raise an alarm."""
    low, high = 0.0, 20.0
    while high - low > 0.005:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(canaries, guesses, right, middle) < ALARM_ONE_RUN else (low, middle)
    return round(low, 2)


def too_small(values: Floats, std: float) -> float:
    """p-value of normal values, of neighbouring rows with one row in common, being as large as they should be.

    Neighbours are correlated by −1/2: every second row is used, and those are independent.
    """
    used = values[::2]
    return float(stats.chi2.cdf(float((used / std).__pow__(2).sum()), used.size))
