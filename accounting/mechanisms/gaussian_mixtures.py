"""Losses of Poisson-sampled Gaussian steps for several records at once, and for records that are exchanged.

k records of which each is sampled with probability q: the noised sum is N(j/σ, 1) with probability Bin(k, q)(j), j ≤ k.
Against the law without them that is Σ_j Bin(j) N(j/σ) against N(0) (the mixture-of-Gaussians mechanism, Ganesh 2024,
"Tight Group-Level DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians Mechanisms"). If they are exchanged
for others it is Σ_j Bin(j) N(j/σ) against Σ_j Bin(j) N(−j/σ).

These pairs dominate for contributions of any direction, up to the clip norm and in any number of dimensions. Let
P = Σ p_i N(a_i, I), Q = Σ q_j N(b_j, I), A_i and B_j their density ratios to N(0, I), and
H_α = E_{N(0, I)} (Σ p_i A_i − α Σ q_j B_j)₊. By Plackett's identity its derivative with respect to a scalar product of
two means is E of the second derivative by their exponents, and with respect to a squared norm half of it, since the
exponents' drift cancels the first derivative. The second derivative of (·)₊ is a measure ≥ 0, so that H_α rises with
⟨a_i, a_i'⟩ and ⟨b_j, b_j'⟩, squared norms included, and falls with ⟨a_i, b_j⟩. All of them are extreme together, at the
end of a segment of positive semidefinite matrices, where every contribution with the records is the same vector at the
clip norm, and every contribution of the others its opposite. It holds for every α > 0, hence for compositions (Zhu,
Dong & Wang 2022). What the other records add only shifts P and Q together, for each of their coins, and H_α of mixtures
is at most the mixture of H_α.

Noise on a grid. Let s be the grid's steps to a deviation. Continuous noise of variance s² − η² that is rounded to a
draw of the discrete Gaussian of variance η² around it is the discrete Gaussian of variance s², but for a factor of at
most 1 ± 4e^{−2π²η²} a coordinate: by Poisson summation no shift of the integers changes Σ_z e^{−(z−y)²/2η²} by more
than 2e^{−2π²η²} of it. With η = 2 that is 10⁻²² for 2⁴⁰ coordinates. So the drawn noise is post-processed continuous
noise of the deviation σ·√(1 − 4/s²).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from accounting.mechanisms.step_losses import UNIT, LossLaw, StepLosses, without_small
from accounting.values import FloatArray

_functions = cast(Any, _special)
_Mixture = tuple[tuple[float, float], ...]

MOST_RECORDS = 256
# Standard deviations below the means at which the smallest losses are cut. They are rounded up.
_BELOW = 10.0
_TABLE = 1 << 14
_NEWTON_STEPS = 3
# Points whose densities are computed at once.
_BLOCK = 1 << 16
# The density's logarithm changes by less in a cell that is integrated by six points: they err by less than 1e-15. In
# wider cells differences of the distribution function keep their digits.
_NARROW = 0.5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


@dataclass(frozen=True)
class GaussianMixtures(LossLaw):
    """One Poisson-sampled Gaussian step for `records` records.

    noise_multiplier  of one record
    exchanged         whether the records are exchanged for as many others, not added or removed
    """

    noise_multiplier: float
    sampling_rate: float
    records: int = 1
    exchanged: bool = False

    @property
    def is_tractable(self) -> bool:
        noise = self.noise_multiplier
        return 0.05 * self.records <= noise <= 1e7 and self.sampling_rate >= 1e-9 and self.records <= MOST_RECORDS

    @property
    def variance(self) -> float:
        moved = self.records * self.sampling_rate * (2 if self.exchanged else 1)
        return moved**2 * math.expm1(min(self.noise_multiplier**-2, 50.0))

    def loss_range(self, tail: float, *, removal: bool) -> tuple[float, float]:
        first, second = self._laws(removal)
        low, high = _losses_at(np.array(_outputs(first, second, tail)), first, second).tolist()
        return low, high

    def losses(self, interval: float, tail: float, *, removal: bool) -> StepLosses:
        return _on_grid(*self._laws(removal), interval, tail)

    def _laws(self, removal: bool) -> tuple[_Mixture, _Mixture]:
        """Both laws, as weights and means: means ≥ 0 of the first one and ≤ 0 of the second one."""
        sampled = _sampled(1 / self.noise_multiplier, self.sampling_rate, self.records)
        mirrored = tuple((weight, -mean) for weight, mean in sampled)
        if self.exchanged:
            return sampled, mirrored
        nothing = ((1.0, 0.0),)
        return (sampled, nothing) if removal else (nothing, mirrored)


def rounded_noise(noise_multiplier: float, grid_std: float) -> float:
    """The noise multiplier of continuous noise of which the noise on the grid is post-processed, rounded down."""
    return noise_multiplier * math.sqrt(1 - 4 / grid_std / grid_std) * (1 - 4 * UNIT)


@lru_cache(maxsize=32)
def _sampled(ratio: float, rate: float, records: int) -> _Mixture:
    pairs = ((math.comb(records, j) * rate**j * (1 - rate) ** (records - j), j * ratio) for j in range(records, -1, -1))
    return tuple((weight, mean) for weight, mean in pairs if weight > 0)


def _outputs(first: _Mixture, second: _Mixture, tail: float) -> tuple[float, float]:
    """Outputs between which the losses are computed: above them there is at most `tail` of the first law."""
    lowest_mean = min(mean for _, mean in second)
    share = tail / len(first)
    high = max(mean - float(_functions.ndtri(min(0.5, share / weight))) for weight, mean in first)
    return lowest_mean - _BELOW, high


def _losses_at(x: FloatArray, first: _Mixture, second: _Mixture) -> FloatArray:
    return _log_ratio(x, first)[0] - _log_ratio(x, second)[0]


def _log_ratio(x: FloatArray, law: _Mixture) -> tuple[FloatArray, FloatArray]:
    """ln of the law's density over that of N(0, 1), and its derivative: both of the shape of x."""
    weights, means = (np.array(values)[:, None] for values in zip(*law, strict=True))
    exponents = np.log(weights) + means * x - means * means / 2
    top = exponents.max(axis=0)
    terms = np.exp(exponents - top)
    total = terms.sum(axis=0)
    return top + np.log(total), (means * terms).sum(axis=0) / total


@lru_cache(maxsize=8)
def _on_grid(first: _Mixture, second: _Mixture, interval: float, tail: float) -> StepLosses:
    low, high = _outputs(first, second, tail)
    ends = _losses_at(np.array([low, high]), first, second)
    start = math.floor(float(ends[0]) / interval)
    last = max(math.ceil(float(ends[1]) / interval), start + 1)
    points = np.asarray(np.arange(start, last + 1) * interval, dtype=np.float64)
    edges, error = _edges(points, first, second, (low, high))
    masses, second_masses = (_masses(edges, law) for law in (first, second))
    # m·e^{−h} + (p − m) = q e^l for a cell of masses p and q above the point l.
    with np.errstate(over="ignore"):
        below = np.exp(points[:-1]) * second_masses
    reach = float(np.abs(edges).max()) + max(abs(mean) for _, mean in (*first, *second))
    # Densities are right to the rounding of their exponents and weights, edges to `error` in the loss.
    slack = (16 + 2 * (len(first) + len(second)) + 3 * reach * reach + np.abs(points[:-1])) * UNIT + error
    right = np.clip((masses - below + 2 * slack * masses) / -math.expm1(-interval), 0.0, masses)
    out = np.zeros(points.size)
    out[:-1] += masses - right
    out[1:] += right
    # What is below the first edge has at most the loss there, which the second point is not below.
    out[1] += _above(-edges[0], [(weight, -mean) for weight, mean in first])
    law = StepLosses(interval, start, out * (1 + float(slack.max())), _above(edges[-1], first), 2 * float(slack.max()))
    return without_small(law)


def _edges(
    points: FloatArray, first: _Mixture, second: _Mixture, outputs: tuple[float, float]
) -> tuple[FloatArray, float]:
    """The outputs at which the losses are those of the points, ascending, and how far off the losses are at most.

    The loss rises with the output: all means of the first law are at or above those of the second one.
    """
    low, high = outputs
    table = np.linspace(low, high, _TABLE)
    edges = np.interp(points, _losses_at(table, first, second), table)
    error = 0.0
    for begin in range(0, points.size, _BLOCK):
        block = slice(begin, begin + _BLOCK)
        x, target = edges[block], points[block]
        for _ in range(_NEWTON_STEPS):
            (upper, rise), (lower, fall) = _log_ratio(x, first), _log_ratio(x, second)
            x = np.clip(x - (upper - lower - target) / np.maximum(rise - fall, 1e-300), low, high)
        edges[block] = x
    # The losses of both ends lie within the first and the last cell.
    edges[0], edges[-1] = low, high
    edges = np.maximum.accumulate(np.minimum(edges, high))
    for begin in range(1, points.size - 1, _BLOCK):
        block = slice(begin, min(begin + _BLOCK, points.size - 1))
        missed = np.abs(_losses_at(edges[block], first, second) - points[block])
        error = max(error, float(missed.max()))
    return edges, error


def _masses(edges: FloatArray, law: Sequence[tuple[float, float]]) -> FloatArray:
    """The mixture's mass between neighbouring edges, shape (edges − 1,), right to a few roundings of its exponents."""
    out = np.zeros(edges.size - 1)
    widths, middles = np.diff(edges), (edges[:-1] + edges[1:]) / 2
    for weight, mean in law:
        centres, halves = middles - mean, widths / 2
        total = np.zeros(out.size)
        for node, share in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
            total += share * np.exp(-np.square(centres + node * halves) / 2)
        low, high = edges[:-1] - mean, edges[1:] - mean
        narrow = widths * np.maximum(1.0, np.maximum(-low, high)) < _NARROW
        # On the side where both are small.
        near, far = np.where(low > 0, -low, high), np.where(low > 0, -high, low)
        wide = _functions.ndtr(near) - _functions.ndtr(far)
        out += weight * np.where(narrow, total * halves / math.sqrt(2 * math.pi), wide)
    return out


def _above(x: float, law: Sequence[tuple[float, float]]) -> float:
    return math.fsum(weight * float(_functions.ndtr(mean - x)) for weight, mean in law) * (1 + 1e-12)
