"""Families of generalised linear models: residual and curvature of one patient, and their public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from study_protocol.queries.counting import Floats

FamilyName = Literal["logistic", "poisson", "linear"]
GOLDEN = (1 + math.sqrt(5)) / 2
# Of the squared norm: the part of the count of patients, of the squared residual, and of what lies at the high.
_COUNT_SHARE, _SQUARE_SHARE, _TOP_SHARE = 0.02, 0.04, 0.03
# Of v: what `excess_at_top` varies by at most.
TOP_VARIANCE = 0.05
# Of a linear regression: the part of the information, beside the gradient.
_INFORMATION_SHARE = 0.25
_PLACES = 4096


@dataclass(frozen=True)
class Scales:
    """What the parts of one patient's vector are multiplied with, so that its norm is at most 1.

    count        the patient
    gradient     w·r·u
    information  w·v·u·uᵀ, off the diagonal times √2
    square       w·r², but of a yes or no 0: its mean says how it varies
    top          w·z of a count, z of `excess_at_top`. Of others 0
    """

    count: float
    gradient: float
    information: float
    square: float = 0.0
    top: float = 0.0


def parts(family: FamilyName, outcome: Floats, predictor: Floats, high: float) -> tuple[Floats, Floats]:
    """Return residual r and curvature v = -dr/dη of every patient at the linear predictor η, shape (n,) each.

    logistic  r = y - μ, v = μ(1 - μ), μ = 1 / (1 + e^-η)
    poisson   r = min(y, H) - m, m = E min(Y, H) of Y ~ Poisson(e^η), v = μ·P(Y < H): clipped counts leave no bias
    linear    r = y - η, v = 1
    """
    if family == "linear":
        return outcome - predictor, np.ones(len(outcome))
    if family == "poisson":
        mean, curvature = clipped_poisson(np.exp(predictor), high)
        return np.minimum(outcome, high) - mean, curvature
    mean = 1 / (1 + np.exp(-predictor))
    return outcome - mean, mean * (1 - mean)


def clipped_poisson(rate: Floats, high: float) -> tuple[Floats, Floats]:
    """Return m = E min(Y, H) and v = dm / dlog μ = μ·P(Y < H) of Y ~ Poisson(μ), H a whole number, at least 1.

    v ≤ m ≤ H. The variance of min(Y, H) is at most v, by Poincaré's inequality of Poisson's law (Klaassen 1985).
    """
    logs, lower, below = np.log(np.maximum(rate, 1e-300)), np.zeros_like(rate), np.zeros_like(rate)
    # Term by term and each by its logarithm, which does not underflow before the term does.
    for count in range(int(high)):
        lower, below = below, below + np.exp(count * logs - rate - math.lgamma(count + 1))
    lower, below = np.minimum(lower, 1.0), np.minimum(below, 1.0)
    return np.minimum(rate * lower + high * (1 - below), high), np.minimum(rate * below, high)


def excess_at_top(outcome: Floats, predictor: Floats, high: float) -> Floats:
    """Return z of every patient, shape (n,), |z| ≤ 1: how much more counts lie at the high than Poisson's law has.

    z = f·(1[y ≥ H] - p - h·r) with p = P(Y ≥ H), h = P(Y = H - 1) / P(Y < H) and the residual r. Its mean is 0 under
    the law, and stays so to first order where the predictor is a little off (Neyman 1959), as dp/dη = h·v. The public
    f ≤ 1 bounds it by 1, and its variance by `TOP_VARIANCE`·v.
    """
    rate = np.exp(predictor)
    mean, curvature = clipped_poisson(rate, high)
    below = curvature / rate
    last = np.exp((high - 1) * predictor - rate - math.lgamma(high))
    hazard = np.minimum(last / np.maximum(below, 1e-300), 1.0)
    top, gap = 1 - below, high - mean
    # In y it falls from 0 to H - 1, and rises once, at H.
    ends = np.abs([hazard * mean - top, hazard * (gap - 1) + top, below - hazard * gap]).max(axis=0)
    # min(Y, H) varies by v at most, and its covariance with 1[Y ≥ H] is p(H - m).
    variance = top * below - 2 * hazard * top * gap + hazard**2 * curvature
    least = np.sqrt(TOP_VARIANCE * curvature / np.maximum(variance, 1e-300))
    factor = np.minimum(1 / np.maximum(ends, 1.0), least)
    return np.asarray(factor * ((outcome >= high) - top - hazard * (np.minimum(outcome, high) - mean)), np.float64)


@cache
def largest_curvature(high: float) -> float:
    """Return a number V that μ·P(Y < H) never exceeds.

    Its derivative after μ is at most 1, and it only falls beyond its one peak, which lies below 2H: there P(Y < H) is
    H·P(Y = H), and their ratio falls in μ.
    """
    step = (2 * high + 2) / _PLACES
    return min(high, float(clipped_poisson(np.linspace(0.0, 2 * high + 2, _PLACES + 1), high)[1].max()) + step)


@cache
def free_curvature(high: float) -> float:
    """Return b² with r²/H² + b² v²/V² ≤ 1 for every count and every rate, r = min(y, H) - m.

    r² is largest at y = 0 or y = H. At H, 1 - (1 - m/H)² ≥ m/H ≥ v/H ≥ (V/H)·v²/V². At 0, 1 - m²/H² is compared with
    v²/V² on cells of μ, m at the upper end and v at the lower one and the width. Beyond the last cell,
    1 - m²/H² ≥ P(Y < H)/H, and the ratio to v² is at least V² / (H μ² P(Y < H)), which rises.
    """
    largest, ends = largest_curvature(high), np.linspace(0.0, 4 * high + 60, 8 * _PLACES + 1)
    means, curvatures = clipped_poisson(ends, high)
    # Of two numbers close to H the difference is lost in floats. Then the last part's bound is larger anyway.
    gaps = np.maximum(1 - (means[1:] / high) ** 2, curvatures[1:] / np.maximum(ends[1:], 1e-300) / high)
    ratios = gaps * largest**2 / (curvatures[:-1] + ends[1]) ** 2
    # Where v is below a hundredth of V: for μ below H + 2, m is small too and 1 - m²/H² is far above b²·10⁻⁴. Above,
    # μ² P(Y < H) falls, as P(Y < H) ≤ P(Y = H)·H/(μ - H).
    near = curvatures[:-1] >= largest / 100
    far = largest**2 / (high * np.maximum(ends[1:] * curvatures[:-1], 1e-300))
    falls = ends[:-1] >= high + 2
    return float(min(largest / high, ratios[near].min(), far[falls & ~near].min(initial=1.0))) * (1 - 1e-9)


def scales(family: FamilyName, radius_square: float, high: float, *, at_zero: bool) -> Scales:
    """Return scales with which every patient's vector has norm 1 at most: w‖u‖² ≤ R² and w‖u‖ ≤ R.

    logistic  count² + (gradient·R·r)² + (information·R²·v)² with r = μ and v = μ(1 - μ), or mirrored. With
              b = information·R²/4 and a = gradient·R it is at most count² + a² where 16 b² μ²(1 - μ) ≤ a²(1 + μ). The
              largest μ²(1 - μ) / (1 + μ) is φ⁻⁵, φ the golden ratio, at μ = 1/φ. So b² = a² φ⁵ / 16 costs nothing
    poisson   |r| ≤ H and v ≤ V. `free_curvature` costs nothing, w·r² and w·z have parts of their own
    linear    |r| ≤ H, v = 1
    at zero   r and v are of η = 0: ½ and ¼, or max(m, H - m) and P(Y < H)·1

    Args:
        radius_square: R².
        high: H of a count, or the largest residual of a linear regression.
        at_zero: whether the linear predictor of every patient is 0, by public numbers.
    """
    radius, rest = math.sqrt(radius_square), 1 - _COUNT_SHARE
    count, square, top = math.sqrt(_COUNT_SHARE), 0.0, 0.0
    if family != "logistic":
        rest, square = rest - _SQUARE_SHARE, math.sqrt(_SQUARE_SHARE) / high**2
    if family == "poisson":
        rest, top = rest - _TOP_SHARE, math.sqrt(_TOP_SHARE)
    if family == "linear":
        information = _INFORMATION_SHARE * rest
        parts_of = math.sqrt(rest - information) / (radius * high), math.sqrt(information) / radius_square
        return Scales(count, *parts_of, square)
    if at_zero:
        residual, curvature = parts(family, np.zeros(1), np.zeros(1), high)
        largest = max(-float(residual[0]), high + float(residual[0]))
        half = math.sqrt(rest / 2)
        return Scales(count, half / (radius * largest), half / (radius_square * float(curvature[0])), square, top)
    gradient = math.sqrt(rest)
    if family == "poisson":
        free = math.sqrt(free_curvature(high))
        parts_of = gradient / (radius * high), gradient * free / (radius_square * largest_curvature(high))
        return Scales(count, *parts_of, square, top)
    return Scales(count, gradient / radius, gradient * math.sqrt(GOLDEN**5 / 16) * 4 / radius_square)
