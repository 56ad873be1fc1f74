"""Composed privacy-loss distributions of (subsampled) Gaussian steps, through dp-accounting.

Everything here errs upwards. The single step is discretised by connect-the-dots (Doroshenko et al. 2022),
which dominates the true mechanism at every epsilon; its tails beyond e⁻⁵⁰ count as infinite loss. Composition
cuts at most 1e-15 of the mass, again counted as infinite loss, and a tail that wraps around in the FFT only adds
mass. What is left is floating-point noise of the FFT: the transform raised to the power T carries a relative error
of about T·2⁻⁵², and summed over the tail it stays below `numeric_error`, which is taken off delta before the query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from accounting.mechanisms.loss_grid import connect_the_dots, loss_between

TAIL_MASS = 1e-15
FINEST_GRID = 1e-4
MOST_BINS = 2**18


@dataclass(frozen=True)
class Steps:
    """`count` equal steps."""

    noise_multiplier: float
    sampling_rate: float
    count: int


def numeric_error(steps: Sequence[Steps]) -> float:
    """Upper bound on the error of any composed δ(ε): ~180 units in the last place for each convolution."""
    convolutions = sum(step.count for step in steps if step.sampling_rate < 1) + len(steps)
    return 4e-14 * convolutions + 2 * TAIL_MASS * len(steps)


def grid_interval(steps: Sequence[Steps], delta: float, epsilon: float) -> float:
    """A grid for an answer that is at most `epsilon`: about 1/4000 of it, if the arrays stay near MOST_BINS.

    A power of two times 1e-4, so that it changes seldom while steps are added.
    """
    guess = max(epsilon / 1000, _central_limit_epsilon(steps, delta, epsilon))
    ends = [loss_between(1 / step.noise_multiplier, step.sampling_rate, removal=True) for step in steps]
    widest = max(high - low for low, high in ends)
    interval = max(min(FINEST_GRID, guess / 4000), widest / MOST_BINS, 2 * epsilon / MOST_BINS)
    return FINEST_GRID * 2.0 ** math.floor(math.log2(interval / FINEST_GRID))


def _central_limit_epsilon(steps: Sequence[Steps], delta: float, most: float) -> float:
    # Only a guess of the scale: Gaussian differential privacy is not an upper bound and enforces nothing.
    variance = sum(
        step.count * step.sampling_rate**2 * math.expm1(min(step.noise_multiplier**-2, 50.0)) for step in steps
    )
    spread, low, high = math.sqrt(variance), 0.0, most
    if spread == 0:
        return 0.0

    def exceeds(epsilon: float) -> bool:
        upper, lower = (_normal_tail(epsilon / spread + sign * spread / 2) for sign in (-1, 1))
        return upper > delta + (math.exp(min(epsilon + math.log(lower), 1.0)) if lower > 0 else 0.0)

    while high - low > high / 64:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
        if high < most / 1000:
            break
    return high


def _normal_tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


@lru_cache(maxsize=64)
def _single(noise_multiplier: float, sampling_rate: float, interval: float) -> Any:
    from dp_accounting.pld import pld_pmf  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld import privacy_loss_distribution as pld  # pyright: ignore[reportMissingTypeStubs]

    # The library's own constructor gives the same masses point by point in Python, ten times slower.
    directions = [
        pld_pmf.DensePLDPmf(interval, *connect_the_dots(1 / noise_multiplier, sampling_rate, interval, removal=r), True)
        for r in (True, False)
    ]
    return pld.PrivacyLossDistribution(*directions)


@lru_cache(maxsize=16)
def _power(steps: Steps, interval: float) -> Any:
    single = _single(steps.noise_multiplier, steps.sampling_rate, interval)
    return single if steps.count == 1 else single.self_compose(steps.count, TAIL_MASS)


def _merge_gaussians(steps: Sequence[Steps]) -> list[Steps]:
    """Unsampled Gaussians compose exactly into one: 1/σ² adds up."""
    full = [step for step in steps if step.sampling_rate == 1]
    if not full:
        return list(steps)
    least = min(step.noise_multiplier for step in full)
    precision = math.fsum(step.count * (least / step.noise_multiplier) ** 2 for step in full)
    merged = Steps(math.nextafter(least / math.sqrt(precision), 0.0), 1.0, 1)
    return [step for step in steps if step.sampling_rate < 1] + [merged]


class ComposedLoss:
    """δ(ε) of a list of steps; remembers all but the last kind of step, so a longer list costs one convolution."""

    def __init__(self) -> None:
        self._parts: tuple[Steps, ...] = ()
        self._interval = 0.0
        self._prefix: Any = None

    def epsilon(self, steps: Sequence[Steps], delta: float, interval: float) -> float:
        """Least ε with δ(ε) ≤ delta, rounded up; infinite when delta is below the numeric error.

        steps non-empty, each noise_multiplier > 0, 0 < sampling_rate ≤ 1, count ≥ 1; 0 < delta < 1.
        """
        parts = tuple(_merge_gaussians(steps))
        spare = delta - numeric_error(parts)
        if spare <= 0:
            return math.inf
        composed = self._compose(parts, interval)
        epsilon = float(composed.get_epsilon_for_delta(spare))
        # The library walks down a grid of accumulated floats: 1e-9 covers its drift.
        return epsilon if epsilon <= 0 else epsilon + 1e-9

    def _compose(self, parts: tuple[Steps, ...], interval: float) -> Any:
        head, last = parts[:-1], parts[-1]
        if self._interval != interval or head[: len(self._parts)] != self._parts:
            self._parts, self._prefix = (), None
        self._interval = interval
        for part in head[len(self._parts) :]:
            power = _power(part, interval)
            self._prefix = power if self._prefix is None else self._prefix.compose(power, TAIL_MASS)
        self._parts = head
        power = _power(last, interval)
        return power if self._prefix is None else self._prefix.compose(power, TAIL_MASS)
