"""Privacy-loss distributions of (subsampled) Gaussian steps: of one step, composed through dp-accounting, and in tables
for many records at once.

Everything here errs upwards. The single step is discretised by connect-the-dots (Doroshenko et al. 2022, Algorithm 1),
which dominates the true mechanism at every epsilon; its tails beyond e⁻⁵⁰ count as infinite loss. Composition
cuts at most 1e-15 of the mass, again counted as infinite loss, and a tail that wraps around in the FFT only adds
mass. What is left is floating-point noise of the FFT: the transform raised to the power T carries a relative error
of about T·2⁻⁵², and summed over the tail it stays below `numeric_error`, which is taken off delta before the query.

Tables: the transform of a composition is the product of the transforms, so the log-transforms of steps at several
distances are added up by one matrix product with the records' step counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.values import FloatArray

_functions = cast(Any, _special)

ComplexArray = npt.NDArray[np.complex128]
IntArray = npt.NDArray[np.int64]
TAIL_MASS = 1e-15
FINEST_GRID = 1e-4
MOST_BINS = 2**18

# Standard deviations at which a step's tails are cut (e⁻⁵⁰); what lies above counts as infinite loss.
_CUT = 10.0
# Numbers in one block of composed records: 64 MiB.
_MEMORY = 1 << 23

# Relative error of |F|^T and of its phase, summed over a tail: about 180 units in the last place per step.
_ROUND_OFF = 4e-14


def hockey_stick(epsilons: FloatArray, ratio: float, rate: float, *, removal: bool) -> FloatArray:
    """δ(ε) of one Poisson-sampled Gaussian step with d/s = ratio > 0, 0 < rate ≤ 1.

    removal: N(0,1)(1−q) + N(r,1)q against N(0,1), where the record takes part; otherwise the two exchanged.
    """
    shifted = epsilons if removal else -epsilons
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # e^ε − (1 − q), without cancelling near ε = 0 nor, for q near 1, far from it
        excess = np.where(np.abs(shifted) < 0.5, np.expm1(shifted) + rate, np.exp(shifted) - (1 - rate))
        log_excess = np.where(shifted > 600, shifted, np.log(excess))
        # The loss is ε where the density ratio e^u is (e^ε − (1−q))/q: at the output x.
        u = log_excess - math.log(rate)
        x = u / ratio + ratio / 2
        if removal:
            inside = rate * (normal_cdf(ratio - x) - _scaled_cdf(u, -x))
            # Below ln(1−q) every output has a larger loss: δ = 1 − e^ε.
            return np.where(excess > 0, np.maximum(inside, 0.0), -np.expm1(epsilons))
        inside = _scaled_cdf(epsilons + log_excess, x) - _scaled_cdf(epsilons + math.log(rate), x - ratio)
    return np.where(excess > 0, np.maximum(inside, 0.0), 0.0)


def _scaled_cdf(u: FloatArray, x: FloatArray) -> FloatArray:
    """e^u Φ(x); directly where nothing over- or underflows, since a logarithm costs digits."""
    return np.where(np.abs(u) < 600, np.exp(np.clip(u, -600, 600)) * normal_cdf(x), np.exp(u + log_normal_cdf(x)))


def connect_the_dots(
    ratio: float, rate: float, interval: float, *, removal: bool, most: int | None = None
) -> tuple[int, FloatArray, float]:
    """The dominating distribution of one step on losses j·interval: first j, masses, mass at infinite loss.

    most  |j| is kept at or below it; a loss above counts as infinite, one below as the first
    """
    low, high = loss_between(ratio, rate, removal=removal)
    first = math.floor(low / interval)
    # A chord has two ends.
    last = max(math.ceil(high / interval), first + 1)
    if most is not None:
        first, last = max(first, -most), min(last, most)
    epsilons = np.asarray(np.arange(first, last + 1) * interval, dtype=np.float64)
    # δ(ε) never rises; where rounding makes it, masses would be negative.
    deltas = np.minimum.accumulate(hockey_stick(epsilons, ratio, rate, removal=removal))
    rises = np.diff(deltas)
    inner = (rises[1:] - rises[:-1] * math.exp(interval)) / math.expm1(interval)
    lowest, highest = 1 - deltas[0] + rises[0] / math.expm1(interval), rises[-1] / math.expm1(-interval)
    masses = np.maximum(np.concatenate([[lowest], inner, [highest]]), 0.0)
    return first, masses, float(deltas[-1])


def loss_between(ratio: float, rate: float, *, removal: bool) -> tuple[float, float]:
    """Losses of one step (arguments as in `hockey_stick`) at the two points where its tails are cut (e⁻⁵⁰)."""
    # The loss is monotone in the output; both ends lie _CUT deviations outside of both means.
    u = ratio * np.array([-_CUT, ratio + _CUT]) - ratio**2 / 2
    low, high = (u if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + u)).tolist()
    return (low, high) if removal else (-high, -low)


@dataclass(frozen=True)
class Steps:
    """`count` equal steps."""

    noise_multiplier: float
    sampling_rate: float
    count: int


def numeric_error(steps: Sequence[Steps]) -> float:
    """Upper bound on the error of any composed δ(ε): ~180 units in the last place for each convolution.

    Measured against 80-bit arithmetic (docs/definitions/classical.md).
    """
    # Unsampled steps are merged into one before anything is convolved.
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
        # Both tails of a standard normal.
        upper, lower = (math.erfc((epsilon / spread + sign * spread / 2) / math.sqrt(2)) / 2 for sign in (-1, 1))
        return upper > delta + (math.exp(min(epsilon + math.log(lower), 1.0)) if lower > 0 else 0.0)

    # Near enough to choose a grid by.
    while high - low > high / 64:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
        if high < most / 1000:
            break
    return high


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
    # In units of the least noise: no square can overflow.
    precision = math.fsum(step.count * (least / step.noise_multiplier) ** 2 for step in full)
    # Towards less noise than there is.
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


@dataclass(frozen=True)
class LossGrid:
    """Losses j·interval for −size/2 ≤ j < size/2, kept in FFT order; size is a power of two."""

    interval: float
    size: int

    @property
    def half(self) -> float:
        """The largest loss that fits."""
        return self.interval * (self.size // 2 - 1)


def step_losses(ratio: float, rate: float, grid: LossGrid, *, removal: bool) -> tuple[FloatArray, float]:
    """Masses of the dominating distribution in FFT order, shape (size,), and the mass at infinite loss."""
    first, masses, infinite = connect_the_dots(ratio, rate, grid.interval, removal=removal, most=grid.size // 2 - 1)
    out = np.zeros(grid.size)
    out[np.arange(first, first + masses.size)] = masses
    return out, infinite


@dataclass(frozen=True)
class LossTable:
    """Transforms of the steps at several distances; row k of both fields belongs to ratios[k].

    log_transforms  (kinds, size/2 + 1) complex;  infinite  (kinds,);  log_mgf  (kinds, moments) at `moments`
    """

    grid: LossGrid
    log_transforms: ComplexArray
    infinite: FloatArray
    moments: FloatArray
    log_mgf: FloatArray

    @classmethod
    def build(
        cls, steps: list[tuple[float, float]], grid: LossGrid, moments: FloatArray, *, removal: bool
    ) -> LossTable:
        """One row per (ratio, rate)."""
        losses = np.fft.fftfreq(grid.size, 1 / grid.size) * grid.interval
        transforms = np.empty((len(steps), grid.size // 2 + 1), dtype=np.complex128)
        infinite, log_mgf = np.empty(len(steps)), np.empty((len(steps), moments.size))
        for row, (ratio, rate) in enumerate(steps):
            masses, infinite[row] = step_losses(ratio, rate, grid, removal=removal)
            used = masses > 0
            exponents = np.log(masses[used]) + np.multiply.outer(moments, losses[used])
            top = exponents.max(axis=1)
            log_mgf[row] = top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))
            transform = np.fft.rfft(masses)
            # Instead of log 0: a transform that small is 0 beside the round-off that is added.
            transforms[row] = np.log(np.where(transform == 0, 1e-300, transform))
        return cls(grid, transforms, infinite, moments, log_mgf)

    def profiles(self, counts: FloatArray, places: IntArray) -> Iterator[FloatArray]:
        """Blocks of rows of δ_i(ε) at ε = places·interval, for records with counts (records, kinds).

        Above the true value: infinite losses, mass wrapped past the end of the grid and round-off are added.
        """
        block = max(1, _MEMORY // self.grid.size)
        losses = np.arange(-self.grid.size // 2, self.grid.size // 2) * self.grid.interval
        # Only losses above ε count towards δ(ε).
        start = self.grid.size // 2 + int(places[0]) + 1
        for first in range(0, counts.shape[0], block):
            rows = counts[first : first + block]
            composed = np.fft.irfft(np.exp(rows @ self.log_transforms), self.grid.size)
            tail = np.fft.fftshift(composed, axes=1)[:, start:]
            above = np.cumsum(tail[:, ::-1], axis=1)[:, ::-1]
            weighted = np.cumsum((tail * np.exp(-losses[start:]))[:, ::-1], axis=1)[:, ::-1]
            at = places - places[0]
            deltas = above[:, at] - np.exp(places * self.grid.interval) * weighted[:, at]
            # Chernoff's bound on the mass past the end of the grid, at the best of the moments.
            wrapped = np.exp(np.minimum(0.0, (rows @ self.log_mgf - self.moments * self.grid.half).min(axis=1)))
            extra = rows @ self.infinite + wrapped + _ROUND_OFF * rows.sum(axis=1)
            yield np.clip(deltas + extra[:, None], 0.0, 1.0)


def normal_cdf(x: FloatArray) -> FloatArray:
    """Φ(x); relative precision in the lower tail."""
    return np.asarray(_functions.ndtr(x), dtype=np.float64)


def log_normal_cdf(x: FloatArray) -> FloatArray:
    """ln Φ(x); far in the lower tail it keeps its digits."""
    return np.asarray(_functions.log_ndtr(x), dtype=np.float64)
