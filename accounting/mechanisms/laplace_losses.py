"""The privacy loss of one Poisson-sampled Laplace step on a grid, every mass rounded up.

With x the output in units of what one record adds, b the scale, A = Laplace(0, b) and B = Laplace(1, b), the log-ratio
of B to A is u(x) = (|x| − |x − 1|)/b: −1/b up to 0, 1/b from 1 on, and a line between. Of the mixture (1 − q)A + qB to
A it is L(x) = ln(1 − q + q e^u). The loss is bounded, so that no mass is cut. Cells and directions are those of
`step_losses` (Doroshenko et al. 2022, Algorithm 1).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np

from accounting.mechanisms.step_losses import UNIT, Cells, StepLosses, dominating
from accounting.values import FloatArray


def laplace_range(ratio: float, rate: float) -> tuple[float, float]:
    """The least and the largest loss L of a step with 1/b = ratio."""
    smallest, largest = (math.log1p(rate * math.expm1(sign * ratio)) if rate < 1 else sign * ratio for sign in (-1, 1))
    return smallest, largest


@lru_cache(maxsize=8)
def laplace_losses(ratio: float, rate: float, interval: float, *, removal: bool) -> StepLosses:
    """The dominating distribution of one step with 1/b = ratio > 0 and 0 < rate ≤ 1."""
    low, high = laplace_range(ratio, rate)
    first = math.floor(low / interval) - 1
    # Beyond the largest loss, whose rounding must not take the mass there.
    points = np.asarray(np.arange(first, math.ceil(high / interval) + 2) * interval, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(np.abs(points) < 0.5, np.expm1(points) + rate, np.exp(points) - (1 - rate))
        # The output at which the loss is that of the point, in [0, 1]. Before the first atom, or behind the last one.
        logs = np.where(excess > 0, np.log(np.maximum(excess, 1e-320)) - math.log(rate), -np.inf)
    edges = np.where(logs <= -ratio, -np.inf, np.where(logs > ratio, np.inf, (logs / ratio + 1) / 2))
    edges[0], edges[-1] = -np.inf, np.inf
    without, with_record = (_masses(edges, ratio, centre) for centre in (0, 1))
    # Relative: exponents of up to 1/b, each right to a unit, and four roundings.
    error = UNIT * (8 + 2 * ratio)
    cells = Cells(points, excess, without, error * without, with_record, error * with_record)
    return dominating(cells, rate, interval, first, below=0.0, infinite=0.0, removal=removal)


def _masses(edges: FloatArray, ratio: float, centre: Literal[0, 1]) -> FloatArray:
    """Laplace(centre, b) between neighbouring edges, each in [0, 1] or infinite. Shape (edges − 1,)."""
    low, high = np.clip(edges[:-1], 0.0, 1.0), np.clip(edges[1:], 0.0, 1.0)
    near = low if centre == 0 else 1 - high
    # Of the very same edges under both laws. A difference of two values of the distribution would have no digits.
    inside = -np.exp(-ratio * near) * np.expm1(-ratio * (high - low)) / 2
    tails = (0.5, math.exp(-ratio) / 2) if centre == 0 else (math.exp(-ratio) / 2, 0.5)
    below = np.where(np.isneginf(edges[:-1]) & ~np.isneginf(edges[1:]), tails[0], 0.0)
    above = np.where(np.isposinf(edges[1:]) & ~np.isposinf(edges[:-1]), tails[1], 0.0)
    return inside + below + above
