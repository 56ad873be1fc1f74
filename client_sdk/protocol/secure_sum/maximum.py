"""Upper bounds on the maximum of private values from one secure sum: blinded thresholds.

On a public grid g_1 < … < g_K a client writes a fresh uniform word where its value exceeds g_k and 0 elsewhere.
The sum over clients is 0 where nobody exceeds g_k and otherwise a uniform word of Z_2^64, so that one bit per
threshold ("somebody exceeds it") is all that shows. A non-zero sum is 0 by chance with probability 2^-64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.secure_sum.fixed_point import EncodingError, Reals, RingVector


@lru_cache(maxsize=32)
def geometric_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` thresholds from low to high with a constant ratio, the same floats on every machine.

    Decimal powers are rounded correctly everywhere; those of libm differ from one system to another.

    Raises:
        EncodingError: unless 0 < low < high < infinity, count >= 2, and float64 keeps the thresholds apart.
    """
    if not (0 < low < high and math.isfinite(high)) or count < 2:
        raise EncodingError("a grid needs 0 < low < high < infinity and at least two thresholds")
    exact = Context(prec=40)
    ratio = exact.divide(Decimal(high), Decimal(low))
    powers = (exact.power(ratio, exact.divide(Decimal(k), Decimal(count - 1))) for k in range(1, count - 1))
    grid = (low, *(float(exact.multiply(Decimal(low), power)) for power in powers), high)
    if any(a >= b for a, b in pairwise(grid)):
        raise EncodingError("count is so large that neighbouring thresholds are equal")
    return grid


def encode_thresholds(values: Reals, grid: tuple[float, ...], randomness: Callable[[int], bytes]) -> NDArray[np.uint64]:
    """Words of shape (values.size · len(grid),), one row of thresholds after the other.

    `randomness(n)` returns n uniform bytes. An infinite value exceeds every threshold.

    Raises:
        EncodingError: NaN, a negative value or -0.0, or an array that is not (d,) floats.
    """
    if values.ndim != 1 or values.dtype.kind != "f":
        raise EncodingError("values is a one-dimensional array of floats")
    if np.isnan(values).any() or np.signbit(values).any():
        raise EncodingError("values holds NaN, a negative number or -0.0: a maximum is taken over costs")
    exceeds = values.astype(np.float64)[:, None] > np.array(grid)
    words = np.frombuffer(randomness(8 * exceeds.size), dtype="<u8").reshape(exceeds.shape)
    return np.where(exceeds, words, np.uint64(0)).ravel()


def decode_thresholds(total: RingVector, grid: tuple[float, ...]) -> NDArray[np.float64]:
    """Per value the smallest threshold that nobody exceeds beyond the highest exceeded one; infinity above the grid."""
    exceeded: NDArray[Any] = total.reshape(-1, len(grid)) != 0
    above = np.where(exceeded.any(axis=1), len(grid) - np.argmax(exceeded[:, ::-1], axis=1), 0)
    return np.append(np.array(grid), np.inf)[above]
