"""Curves that only rise: the nearest one to noisy points, and where one passes a level."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# The normal law's 97.5 % point.
_WIDE = 1.959963984540054


def isotonic(values: Floats) -> Floats:
    """Return the nearest numbers in least squares that never fall, shape (n,). Ayer and others 1955."""
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] >= mean:
            before, length = means.pop(), sizes.pop()
            size += length
            # Equal values stay exactly as they are.
            mean = before + (mean - before) * ((size - length) / size)
        means.append(mean)
        sizes.append(size)
    return np.repeat(np.array(means, np.float64), sizes)


def first_reached(places: Floats, values: Floats, level: float) -> float:
    """Return the first place at which the straight line through the points is at the level or above.

    NaN if there is none.
    """
    above = values >= level
    if not above.any():
        return float("nan")
    at = int(np.argmax(above))
    if at == 0:
        return float(places[0])
    part = (level - values[at - 1]) / (values[at] - values[at - 1])
    return float(places[at - 1] + part * (places[at] - places[at - 1]))


def last_reached(places: Floats, values: Floats, level: float) -> float:
    """Return the last place at which the straight line through the points is at the level or below.

    NaN if there is none.
    """
    return first_reached(places[::-1], -values[::-1], -level)


def errors_along(
    place_of: Callable[[float], float], level: float, noise: float, sampling: float
) -> tuple[float, float]:
    """Return the errors of the place at which a curve is at a level, from errors of the curve there.

    They follow from the part that the curve covers within 1.96 errors of both together (Woodruff 1952). The slope at
    the place alone would be as noisy as the curve.
    """
    combined = math.hypot(noise, sampling)
    if combined == 0:
        return 0.0, 0.0
    slope = abs(place_of(level + _WIDE * combined) - place_of(level - _WIDE * combined)) / (2 * _WIDE * combined)
    return slope * noise, slope * sampling
