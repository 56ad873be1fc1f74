"""Privacy-loss distributions of many records at once, in tables: for the averaged bound, at the δ of a population.

Everything here errs upwards. A step is discretised by connect-the-dots (Doroshenko et al. 2022, Algorithm 1), which
dominates the true mechanism at every epsilon. Its tails beyond e⁻⁵⁰ count as infinite loss. Mass that wraps around in
the FFT is added, and so is its floating-point noise: the transform raised to the power T carries a relative error of
about T·2⁻⁵². One law at a small δ is the business of `composed_loss`.

The transform of a composition is the product of the transforms, so the log-transforms of steps at several distances are
added up by one matrix product with the records' step counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.values import FloatArray

_functions = cast(Any, _special)

ComplexArray = npt.NDArray[np.complex128]
IntArray = npt.NDArray[np.int64]

# Standard deviations at which a step's tails are cut (e⁻⁵⁰). What lies above counts as infinite loss.
_CUT = 10.0
# Numbers in one block of composed records: 64 MiB.
_MEMORY = 1 << 23

# Relative error of |F|^T and of its phase, summed over a tail: about 180 units in the last place per step.
_ROUND_OFF = 4e-14


def hockey_stick(epsilons: FloatArray, ratio: float, rate: float, *, removal: bool) -> FloatArray:
    """δ(ε) of one Poisson-sampled Gaussian step with d/s = ratio > 0, 0 < rate ≤ 1.

    removal: N(0,1)(1−q) + N(r,1)q against N(0,1), where the record takes part. Otherwise the two exchanged.
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
    """Return e^u Φ(x), directly where there is no over- or underflow, since a logarithm costs digits."""
    return np.where(np.abs(u) < 600, np.exp(np.clip(u, -600, 600)) * normal_cdf(x), np.exp(u + log_normal_cdf(x)))


def connect_the_dots(
    ratio: float, rate: float, interval: float, *, removal: bool, max_bins: int | None = None
) -> tuple[int, FloatArray, float]:
    """The dominating distribution of one step on losses j·interval: first j, masses, mass at infinite loss.

    max_bins  |j| is kept at or below it. A loss above counts as infinite, one below as the first
    """
    low, high = loss_between(ratio, rate, removal=removal)
    first = math.floor(low / interval)
    # A chord has two ends.
    last = max(math.ceil(high / interval), first + 1)
    if max_bins is not None:
        first, last = max(first, -max_bins), min(last, max_bins)
    epsilons = np.asarray(np.arange(first, last + 1) * interval, dtype=np.float64)
    # δ(ε) never rises. Where rounding makes it, masses would be negative.
    deltas = np.minimum.accumulate(hockey_stick(epsilons, ratio, rate, removal=removal))
    rises = np.diff(deltas)
    inner = (rises[1:] - rises[:-1] * math.exp(interval)) / math.expm1(interval)
    lowest, highest = 1 - deltas[0] + rises[0] / math.expm1(interval), rises[-1] / math.expm1(-interval)
    masses = np.maximum(np.concatenate([[lowest], inner, [highest]]), 0.0)
    return first, masses, float(deltas[-1])


def loss_between(ratio: float, rate: float, *, removal: bool) -> tuple[float, float]:
    """Losses of one step (arguments as in `hockey_stick`) at the two points where its tails are cut (e⁻⁵⁰)."""
    # The loss is monotone in the output. Both ends lie _CUT deviations outside of both means.
    u = ratio * np.array([-_CUT, ratio + _CUT]) - ratio**2 / 2
    low, high = (u if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + u)).tolist()
    return (low, high) if removal else (-high, -low)


@dataclass(frozen=True)
class LossGrid:
    """Losses j·interval for −size/2 ≤ j < size/2, kept in FFT order. Size is a power of two."""

    interval: float
    size: int

    @property
    def half(self) -> float:
        """The largest loss that fits."""
        return self.interval * (self.size // 2 - 1)


def step_losses(ratio: float, rate: float, grid: LossGrid, *, removal: bool) -> tuple[FloatArray, float]:
    """Masses of the dominating distribution in FFT order, shape (size,), and the mass at infinite loss."""
    first, masses, infinite = connect_the_dots(ratio, rate, grid.interval, removal=removal, max_bins=grid.size // 2 - 1)
    out = np.zeros(grid.size)
    out[np.arange(first, first + masses.size)] = masses
    return out, infinite


@dataclass(frozen=True)
class LossTable:
    """Transforms of the steps at several distances. Row k of both fields belongs to ratios[k].

    log_transforms  (kinds, size/2 + 1) complex
    infinite        (kinds,)
    log_mgf         (kinds, moments) at `moments`
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
    """Φ(x). Relative precision in the lower tail."""
    return np.asarray(_functions.ndtr(x), dtype=np.float64)


def log_normal_cdf(x: FloatArray) -> FloatArray:
    """ln Φ(x). Far in the lower tail it keeps its digits."""
    return np.asarray(_functions.log_ndtr(x), dtype=np.float64)
