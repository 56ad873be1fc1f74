"""Curves that only rise: the nearest one to noisy points, and where one passes a level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rising(values: Floats, weights: Floats | None = None) -> Floats:
    """(n,) the nearest numbers in weighted least squares that never fall. Ayer and others 1955."""
    blocks: list[tuple[float, float, int]] = []
    masses = np.ones(len(values)) if weights is None else weights
    for value, mass in zip(values.tolist(), masses.tolist(), strict=True):
        mean, weight, size = value, mass, 1
        while blocks and blocks[-1][0] >= mean:
            before, more, length = blocks.pop()
            # In this order equal values stay as they are, whatever the weights.
            mean = before + (mean - before) * (weight / (weight + more))
            weight, size = weight + more, size + length
        blocks.append((mean, weight, size))
    return np.repeat([block[0] for block in blocks], [block[2] for block in blocks])


def reached(places: Floats, values: Floats, level: float) -> float:
    """The first place at which the straight line through the points is at the level or above; NaN: nowhere."""
    above = values >= level
    if not above.any():
        return float("nan")
    at = int(np.argmax(above))
    if at == 0:
        return float(places[0])
    part = (level - values[at - 1]) / (values[at] - values[at - 1])
    return float(places[at - 1] + part * (places[at] - places[at - 1]))


def left(places: Floats, values: Floats, level: float) -> float:
    """The last place at which the straight line through the points is at the level or below; NaN: nowhere."""
    return reached(places[::-1], -values[::-1], -level)
