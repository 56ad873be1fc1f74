"""Sums, projections and random words that are the same on every processor.

IEEE 754 fixes the result of +, -, ×, / and √ on doubles, but not the order in which a library adds many numbers up, nor
exp, log and powers. So sums are taken term by term here, and nothing needs another function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def summed(values: Floats, axis: int) -> Floats:
    """Return the sum over one axis, added up in the order of its entries."""
    total = np.zeros(np.delete(values.shape, axis))
    for part in np.moveaxis(values, axis, 0):
        total = total + part
    return total


def total_of(values: Floats) -> float:
    """Return the sum of all entries, added up in their order. Empty: 0."""
    return float(np.cumsum(values.ravel())[-1]) if values.size else 0.0


def gathered(values: Floats, groups: Integers, axis: int = 0) -> Floats:
    """Return the sums of the entries of each group along one axis."""
    moved = np.moveaxis(values, axis, 0)
    sums = np.zeros((int(groups.max()) + 1, *moved.shape[1:]))
    for group, part in zip(groups.tolist(), moved, strict=True):
        sums[group] = sums[group] + part
    return np.moveaxis(sums, 0, axis)


def on_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest vector of this sum without a negative entry (Duchi et al. 2008). A total ≤ 0 gives zeros."""
    if total <= 0:
        return np.zeros_like(values)
    falling = np.sort(values)[::-1]
    surplus = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > surplus)[-1]) if np.any(falling > surplus) else 0
    return np.maximum(values - surplus[last], 0.0)


def divided(numerator: Floats, denominator: Floats) -> Floats:
    """Return the quotient, and 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=denominator != 0)


class RandomWords:
    """Random 64-bit words from a public seed. Philox's words are the same in every version of numpy."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        """Args: seed: from 0 to 2⁶³ - 1. stream: another one gives independent words."""
        self._source = np.random.Philox(key=np.array([seed, stream], np.uint64))

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.asarray(self._source.random_raw(count), np.uint64)

    def uniform(self, count: int) -> Floats:
        """Return numbers in [0, 1): whole multiples of 2⁻⁵³."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> Floats:
        """Return nearly normal numbers: sums of 12 uniform ones, less 6. Variance 1, and no tail beyond 6."""
        return summed(self.uniform(12 * count).reshape(12, count), 0) - 6.0
