"""Ratios of two noised sums, such as a share or a mean: errors, and intervals that hold with few patients, too.

The interval holds the ratios r with |numerator - r·denominator| ≤ 1.96 √variance(r), of noise and sampling together.
That is a quadratic in r: Fieller 1954, and Wilson 1927 where it is a share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.counting import NORMAL, STANDS_OUT, Estimates, Floats, ends_within


@dataclass(frozen=True)
class Quadratic:
    """A variance as a function of the ratio r: constant + linear·r + square·r², each of shape (n,)."""

    constant: Floats
    linear: Floats
    square: Floats

    def at(self, ratio: Floats) -> Floats:
        return np.maximum(self.constant + self.linear * ratio + self.square * ratio**2, 0.0)


def of_share(total: Floats) -> Quadratic:
    """Return the sampling variance of a share of so many patients: r(1 - r)·total, as Wilson has it."""
    return Quadratic(np.zeros_like(total), total, -total)


def of_weights(numerator: Floats, denominator: Floats, squares: Quadratic) -> Quadratic:
    """Return the sampling variance of a ratio of weighted counts, as it is at the estimated ratio, for every ratio.

    Args:
        squares: Σ (above - r·below)²·count over the cells.
    """
    ratio = numerator / np.where(denominator > 0, denominator, 1.0)
    return Quadratic(squares.at(ratio), np.zeros_like(ratio), np.zeros_like(ratio))


def ratios(
    numerator: Floats,
    denominator: Floats,
    noise: Quadratic,
    sampling: Quadratic,
    low: Floats | float = 0.0,
    high: Floats | float = 1.0,
) -> Estimates:
    """Return numerator / denominator, shape (n,) each.

    No estimate (NaN), and an interval of all possible values, where the denominator is not above 3 deviations of its
    noise.

    Args:
        low, high: the range of possible values.
    """
    square = NORMAL**2
    a = denominator**2 - square * (noise.square + sampling.square)
    b = -2 * numerator * denominator - square * (noise.linear + sampling.linear)
    c = numerator**2 - square * (noise.constant + sampling.constant)
    is_known = (denominator > 0) & (a > 0) & (denominator**2 > STANDS_OUT**2 * noise.square)
    safe, total = np.where(is_known, a, 1.0), np.where(is_known, denominator, 1.0)
    root = np.sqrt(np.maximum(b**2 - 4 * a * c, 0.0))
    ratio = numerator / total
    ends = ends_within(ratio, (-b - root) / (2 * safe), (-b + root) / (2 * safe), low, high)
    return Estimates(
        raw=_if(is_known, ratio),
        estimate=_if(is_known, np.clip(ratio, low, high)),
        dp_error=_if(is_known, np.sqrt(noise.at(ratio)) / total),
        sampling_error=_if(is_known, np.sqrt(sampling.at(np.clip(ratio, low, high))) / total),
        low=np.where(is_known, ends[0], low),
        high=np.where(is_known, ends[1], high),
    )


def _if(is_known: NDArray[np.bool_], values: Floats) -> Floats:
    return np.where(is_known, values, np.nan)
