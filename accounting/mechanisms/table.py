"""φ for many records at once: a table in d², read by chords.

φ is convex in t = d²/s², so a chord never lies below it. For integer λ it is a log-sum-exp of lines. For real
α = λ+1 > 1 let v(y, t) = log E (1−q+q e^{y+B_t−t/2})^α; g = ∂v/∂t obeys g_t = g_yy/2 + (v_y − 1/2) g_y and h = g_t the
same equation with the source g_y² ≥ 0. At t = 0, with w = q e^y/(1−q+q e^y), g = α(α−1)w²/2 and
h = α(α−1)w²(1−w)(1 + (2α−3)w)/2 ≥ 0: by the maximum principle h stays ≥ 0.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from accounting.mechanisms.exact import exact_moments
from accounting.units import FloatArray

_TOLERANCE = 4e-3
_START = 256
_ROUNDS = 8
_BLOCK = 1 << 16


def tabulated(orders: FloatArray, ratio: FloatArray, rate: float) -> FloatArray:
    """φ at every order for every distance in units of the noise; shape (orders, records)."""
    top = float(ratio.max())
    out = np.empty((orders.size, ratio.size))
    if top == 0 or rate == 0:
        out.fill(0.0)
        return out
    if not 1e-100 < top < 1e100:
        return exact_moments(orders, ratio, rate)
    # A power of two, so that an accounting sample whose largest norm moves a little keeps its table.
    nodes, values, slopes = _table(tuple(orders.tolist()), float(2.0 ** np.ceil(np.log2(top))), rate)
    offset, scratch = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, ratio.size, _BLOCK):
        t = np.square(ratio[start : start + _BLOCK])
        index = np.clip(np.searchsorted(nodes, t, side="right") - 1, 0, nodes.size - 2)
        offset, scratch = offset[: t.size], scratch[: t.size]
        np.subtract(t, nodes.take(index), out=offset)
        for row in range(orders.size):
            part = out[row, start : start + _BLOCK]
            # mode="clip" because "raise" makes numpy buffer the output
            slopes[row].take(index, out=part, mode="clip")
            part *= offset
            part += values[row].take(index, out=scratch, mode="clip")
    return out


@lru_cache(maxsize=32)
def _table(orders: tuple[float, ...], top: float, rate: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes in t from 0 to top², φ at the left end of each chord, and each chord's slope.

    Chords are halved until none lies more than the tolerance above φ at its middle.
    """

    def moments(t: FloatArray) -> FloatArray:
        return exact_moments(np.array(orders), np.sqrt(t), rate)

    # Below this node every order is linear in t to well under the tolerance.
    first = _TOLERANCE / (4 * (1 + orders[-1]) ** 2)
    start = np.geomspace(min(first, top**2 / 2), top**2, _START)
    start[-1] = top**2
    nodes = np.concatenate([[0.0], start])
    values = moments(nodes)
    for _ in range(_ROUNDS):
        middle = (nodes[:-1] + nodes[1:]) / 2
        chord = (values[:, :-1] + values[:, 1:]) / 2
        exact = moments(middle)
        with np.errstate(invalid="ignore"):
            split = (chord > exact * (1 + _TOLERANCE)).any(axis=0)
        if not split.any():
            break
        places = np.flatnonzero(split) + 1
        nodes = np.insert(nodes, places, middle[split])
        values = np.insert(values, places, exact[:, split], axis=1)
    with np.errstate(invalid="ignore"):
        slopes = np.diff(values) / np.diff(nodes)
    # An infinite end makes an infinite chord; the factor covers the rounding of the chord itself.
    slopes = np.where(np.isfinite(slopes), slopes * (1 + 1e-12), np.inf)
    return nodes, values[:, :-1] * (1 + 1e-12), slopes
