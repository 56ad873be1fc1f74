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
# Of the squared norm: the part of the count of patients, and in a linear regression that of the squared outcome.
_COUNT_SHARE, _SQUARE_SHARE = 0.02, 0.03


@dataclass(frozen=True)
class Scales:
    """What the parts of one patient's vector are multiplied with, so that its norm is at most 1.

    count        the patient
    gradient     w·r·u
    information  w·v·u·uᵀ, off the diagonal times √2
    square       w·y² of a linear regression, else 0
    """

    count: float
    gradient: float
    information: float
    square: float = 0.0


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
    from scipy import special  # pyright: ignore[reportMissingTypeStubs]

    below = np.asarray(special.pdtr(high - 1, rate), np.float64)
    lower = np.asarray(special.pdtr(high - 2, rate), np.float64) if high >= 2 else np.zeros_like(rate)
    curvature = rate * below
    return np.minimum(rate * lower + high * (1 - below), high), np.minimum(curvature, high)


@cache
def largest_curvature(high: float) -> float:
    """Return a number that μ·P(Y < H) never exceeds.

    Its derivative after μ is at most 1, and it only falls beyond its one peak, which lies below 2H + 2.
    """
    step = (2 * high + 2) / 4096
    return min(high, float(clipped_poisson(np.linspace(0.0, 2 * high + 2, 4097), high)[1].max()) + step)


def scales(family: FamilyName, radius_square: float, high: float, *, at_zero: bool) -> Scales:
    """Return scales with which every patient's vector has norm 1 at most: w‖u‖² ≤ R² and w‖u‖ ≤ R.

    logistic  count² + (gradient·R·r)² + (information·R²·v)² with r = μ and v = μ(1 - μ), or mirrored. With
              b = information·R²/4 and a = gradient·R it is at most a² where 16 b² μ²(1 - μ) ≤ a²(1 + μ). The largest
              μ²(1 - μ) / (1 + μ) is φ⁻⁵, φ the golden ratio, at μ = 1/φ. So b² = a² φ⁵ / 16 costs nothing.
              At η = 0 for all: r = ½ and v = ¼
    poisson   |r| ≤ H and v ≤ V, the largest μ·P(Y < H)
    linear    |y| ≤ 1, at coefficients of 0 alone

    Args:
        radius_square: R².
        high: H of Poisson's outcome.
        at_zero: whether the linear predictor of every patient is 0, by public numbers.
    """
    radius, rest = math.sqrt(radius_square), 1 - _COUNT_SHARE
    count = math.sqrt(_COUNT_SHARE)
    if family == "linear":
        rest -= _SQUARE_SHARE
        gradient, information = math.sqrt(rest * 0.6) / radius, math.sqrt(rest * 0.4) / radius_square
        return Scales(count, gradient, information, math.sqrt(_SQUARE_SHARE))
    if family == "poisson":
        gradient = math.sqrt(rest * 0.85) / (radius * high)
        return Scales(count, gradient, math.sqrt(rest * 0.15) / (radius_square * largest_curvature(high)))
    if at_zero:
        return Scales(count, math.sqrt(rest / 2) * 2 / radius, math.sqrt(rest / 2) * 4 / radius_square)
    gradient = math.sqrt(rest) / radius
    return Scales(count, gradient, gradient * radius * math.sqrt(GOLDEN**5 / 16) * 4 / radius_square)
