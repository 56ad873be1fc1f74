"""The privacy loss of one Poisson-sampled Gaussian step on a grid, every mass rounded up and right to its own digits.

With x the output in units of the noise, A = N(0, 1), B = N(r, 1) and the mixture (1−q)A + qB, the log-ratio of mixture
to A is L(x) = ln(1 − q + q e^{rx − r²/2}). "Removal" is the loss L under the mixture, "addition" −L under A.

Connect-the-dots (Doroshenko et al. 2022, Algorithm 1), cell by cell: what lies between two grid points is split between
them so that both laws keep their mass. The discrete pair then dominates the true one at every ε. Masses are differences
of normal distribution functions inside one cell, not second differences of δ(ε): in the tails they keep their relative
precision, without which a tilted law (`composed_loss`) would be noise. The possible loss by rounding is put back on
top, so that the result is an upper bound, not an estimate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.values import FloatArray

_functions = cast(Any, _special)

# One unit in the last place, relative.
UNIT = 2.0**-52
# What is smaller counts as infinite loss.
_LEAST_MASS = 1e-280


@dataclass(frozen=True)
class StepLosses:
    """Masses of losses (first + j)·interval, shape (n,), and the mass at infinite loss.

    drift  what every loss may be too small by, beyond the rounding of one float
    """

    interval: float
    first: int
    masses: FloatArray
    infinite: float
    drift: float = 0.0

    @property
    def losses(self) -> FloatArray:
        """(n,) nats."""
        return np.asarray(np.arange(self.first, self.first + self.masses.size) * self.interval, dtype=np.float64)

    def tilted(self, order: float) -> tuple[FloatArray, float]:
        """e^{θl}·mass/M, shape (n,), for θ = order, and ln M = ln Σ e^{θl}·mass: both rounded up."""
        exponents = order * self.losses
        with np.errstate(divide="ignore"):
            shift = float((exponents + np.log(self.masses)).max())
        # The rounding of the exponent is a relative error of the exponential.
        rounding = 1 + UNIT * (4 + np.abs(exponents - shift) + np.abs(exponents))
        weights = self.masses * np.exp(np.minimum(exponents - shift, 700.0)) * rounding
        total = float(weights.sum())
        return weights / total, shift + math.log(total)

    def log_mgf(self, order: float) -> float:
        """ln Σ e^{θl}·mass for θ = order."""
        return self.tilted(order)[1]


class LossLaw(ABC):
    """A step that computes its own loss distribution. Its values are hashable: they are remembered by them."""

    @property
    @abstractmethod
    def is_tractable(self) -> bool:
        """Whether the distribution can be computed. If not, Rényi divergences bound the step."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """About the variance of the loss. It only chooses the grid."""

    @abstractmethod
    def loss_range(self, tail: float, *, removal: bool) -> tuple[float, float]:
        """The least and the largest loss, but for `tail` of the mass above."""

    @abstractmethod
    def losses(self, interval: float, tail: float, *, removal: bool) -> StepLosses:
        """The dominating distribution on a grid. removal: from the law with the record to the one without it."""


def output_range(ratio: float, rate: float, tail: float, *, removal: bool) -> tuple[float, float]:
    """Outputs x between which all but `tail` of the law of the loss lies, and the one that bounds the loss exactly so.

    The other end may lie anywhere: what is beyond it is given the smallest loss of the grid.
    """
    far = -float(_functions.ndtri(tail / 2))
    if not removal:
        return -far, 10.0
    sampled = -float(_functions.ndtri(min(0.5, tail / (2 * rate)))) + ratio
    return -10.0, max(far, sampled)


def loss_at(x: float, ratio: float, rate: float) -> float:
    """L(x)."""
    u = ratio * x - ratio * ratio / 2
    return u if rate == 1 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + u))


@lru_cache(maxsize=8)
def step_losses(ratio: float, rate: float, interval: float, tail: float, *, removal: bool) -> StepLosses:
    """The dominating distribution of one step with d/s = ratio > 0 and 0 < rate ≤ 1.

    tail  at most about this mass counts as infinite loss
    """
    low, high = (loss_at(x, ratio, rate) for x in output_range(ratio, rate, tail, removal=removal))
    first = math.floor(low / interval)
    # A cell has two ends.
    last = max(math.ceil(high / interval), first + 1)
    points = np.asarray(np.arange(first, last + 1) * interval, dtype=np.float64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # e^ε − (1 − q), without cancelling near ε = 0 nor, for q near 1, far from it.
        excess = np.where(np.abs(points) < 0.5, np.expm1(points) + rate, np.exp(points) - (1 - rate))
        # The output at which the loss is ε. Below ln(1−q) there is none.
        edges = np.where(excess > 0, (np.log(np.maximum(excess, 1e-320)) - math.log(rate)) / ratio + ratio / 2, -np.inf)
    without, without_error = _cell_masses(edges, 0.0)
    with_record, with_error = _cell_masses(edges, ratio)
    # Beyond the last point the loss is infinite. Below the first it is rounded up to it.
    if removal:
        below = rate * _cdf(edges[0] - ratio) + (1 - rate) * _cdf(edges[0])
        infinite = rate * _cdf(ratio - edges[-1]) + (1 - rate) * _cdf(-edges[-1])
    else:
        below, infinite = _cdf(-edges[-1]), _cdf(edges[0])
    cells = Cells(points, excess, without, without_error, with_record, with_error)
    return dominating(cells, rate, interval, first, below=below, infinite=infinite, removal=removal)


@dataclass(frozen=True)
class Cells:
    """The masses between neighbouring points of the grid under both laws of the output.

    points, excess         (n,) losses and e^loss − (1 − q)
    without, with_record   (n − 1,) masses under A and under B, each with a bound on its rounding beside it
    """

    points: FloatArray
    excess: FloatArray
    without: FloatArray
    without_error: FloatArray
    with_record: FloatArray
    with_error: FloatArray


def dominating(
    cells: Cells, rate: float, interval: float, first: int, *, below: float, infinite: float, removal: bool
) -> StepLosses:
    """Split each cell's mass between its two points so that both laws keep theirs. Doubtful mass goes up.

    below     mass at smaller losses than the first point's
    infinite  mass at larger losses than the last point's
    """
    without, with_record, points, excess = cells.without, cells.with_record, cells.points, cells.excess
    width = -math.expm1(-interval)
    if removal:
        mass = (1 - rate) * without + rate * with_record
        mass_error = (1 - rate) * cells.without_error + rate * cells.with_error
        above, scale = excess[:-1], np.ones_like(without)
        right = rate * with_record - above * without
    else:
        mass, mass_error = without, cells.without_error
        above, scale = excess[1:], np.exp(-points[1:])
        right = scale * (above * without - rate * with_record)
    slack = rate * cells.with_error + np.abs(above) * cells.without_error
    slack = slack + 4 * UNIT * (rate * with_record + np.abs(above) * without)
    mass = mass + mass_error
    # Too much to the larger loss is on the safe side.
    right = np.clip((right + scale * slack) / width, 0.0, mass)
    masses = np.zeros(points.size)
    if removal:
        masses[:-1] += mass - right
        masses[1:] += right
        masses[0] += below
    else:
        masses[1:] += mass - right
        masses[:-1] += right
        masses[-1] += below
        first, masses = 1 - first - points.size, masses[::-1].copy()
    return without_small(StepLosses(interval, first, masses, infinite))


def without_small(law: StepLosses) -> StepLosses:
    """The law with its smallest masses at infinite loss: they could not be multiplied by the exponentials of a tilt."""
    masses, small = law.masses.copy(), law.masses < _LEAST_MASS
    infinite = law.infinite + float(masses[small].sum())
    masses[small] = 0.0
    masses.setflags(write=False)
    return StepLosses(law.interval, law.first, masses, infinite * (1 + 1e-12), law.drift)


def _cell_masses(edges: FloatArray, mean: float) -> tuple[FloatArray, FloatArray]:
    """N(mean, 1) between neighbouring edges, and a bound on what rounding changed. Both of shape (edges − 1,)."""
    low, high = edges[:-1] - mean, edges[1:] - mean
    # On the side where both are small: 1 − Φ would have no digits there.
    upper = low > 0
    near, far = np.where(upper, -low, high), np.where(upper, -high, low)
    largest = cumulative(near)
    # Φ's own error is that of e^{−x²/2}: x² units. Beyond 38 it is 0.
    error = UNIT * (4 + np.square(np.clip(near, -40, 0))) * largest
    return np.maximum(largest - cumulative(far), 0.0), error


def cumulative(x: FloatArray) -> FloatArray:
    """Φ(x). Relative precision in the lower tail."""
    return np.asarray(_functions.ndtr(x), dtype=np.float64)


def _cdf(x: float) -> float:
    return float(_functions.ndtr(x))
