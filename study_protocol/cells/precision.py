"""Numbers of low precision as the decimal numbers that were meant: 36.6 in 32 bits is 36.6, not 36.599998."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# 10²² is the largest power of ten that a float64 holds exactly, so that one division rounds once.
_EXACT_POWER = 22
# Numbers that are treated at once: few enough for the processor's cache.
_BLOCK = 1 << 13


def widened(values: np.ndarray[Any, np.dtype[Any]]) -> NDArray[np.float64]:
    """Return float64 of stored numbers or Booleans, shape (n,).

    Of float16 and float32 it is the shortest decimal number that is theirs. Whole numbers, and all of float64, are as
    they are.
    """
    wide = values.astype(np.float64)
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        for start in range(0, len(values), _BLOCK):
            _shorten(wide[start : start + _BLOCK], values[start : start + _BLOCK])
    return wide


def _shorten(wide: NDArray[np.float64], values: np.ndarray[Any, np.dtype[Any]]) -> None:
    """Shorten the numbers in place."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        (places,) = np.nonzero(np.isfinite(wide) & (wide != np.rint(wide)))
        exponent = np.floor(np.log10(np.abs(wide[places])))
        stored, exact = values[places], wide[places]
        # Fewest digits first: from those that every number of the type keeps, fewer where it is nearly zero.
        precision = np.finfo(values.dtype).precision
        for digits in range(1 if precision < _SINGLE else precision, precision + 4):
            if not len(places):
                return
            power = digits - 1 - exponent
            scale = _POWERS[np.clip(power, 0, _EXACT_POWER).astype(np.int64)]
            short = np.rint(exact * scale) / scale
            hit = (short.astype(values.dtype) == stored) & (power >= 0) & (power <= _EXACT_POWER)
            wide[places[hit]] = short[hit]
            misses = ~hit
            places, exponent, stored, exact = places[misses], exponent[misses], stored[misses], exact[misses]
    # Very small ones.
    wide[places] = [float(str(number)) for number in stored]


_SINGLE = np.finfo(np.float32).precision
_POWERS = 10.0 ** np.arange(_EXACT_POWER + 1)
