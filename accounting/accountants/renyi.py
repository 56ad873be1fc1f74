"""Rényi divergences of a run at many orders, read at the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from accounting.mechanisms.divergence import MOST_TERMS
from accounting.mechanisms.events import GaussianEvent, Kind, kind_moments
from accounting.units import Relation
from accounting.values import FloatArray

IntArray = npt.NDArray[np.int64]
# A function of orders, log-moments and a δ or an ε: an ε or a δ at each order.
Reader = Callable[[FloatArray, FloatArray, float], FloatArray]

# Real orders, 4 % apart, and every default order of dp-accounting and Opacus.
_COMMON_ORDERS: FloatArray = np.unique(
    np.concatenate(
        [np.geomspace(0.02, 1023, 280), np.arange(1, 100) / 10, np.arange(10.0, 64.0), [127.0, 255.0, 511.0]]
    )
)
# At an order λ no noise brings ε below about ln(1/δλ)/λ: small ε need larger ones. Integers, whose sums are cheap.
_LARGE_ORDERS: FloatArray = np.unique(np.geomspace(1064, MOST_TERMS, 177).round())
ORDERS: FloatArray = np.concatenate([_COMMON_ORDERS, _LARGE_ORDERS])

# Above this no reader acts on the difference between two numbers.
MAX_EPSILON = 1000.0


def orders_of(order: float | None) -> FloatArray:
    """The one order λ of a filter, or all."""
    return ORDERS if order is None else np.array([order])


def common_orders(order: float | None) -> int:
    """How many of the orders, from the first, are asked in any case."""
    return min(orders_of(order).size, _COMMON_ORDERS.size)


def best_reading(
    counts: Mapping[Kind, int], relation: Relation, order: float | None, read: Reader, at: float
) -> tuple[float, int]:
    """The least reading, an ε or a δ, over the orders, and how many of them were asked."""
    orders = orders_of(order)
    if all(isinstance(kind.atom, GaussianEvent) and kind.rate == 1 for kind in counts):
        # In closed form all orders cost less than a second round of questions.
        every = (count * _closed(kind, relation, order) for kind, count in counts.items())
        readings = read(orders, sum(every, np.zeros(orders.size)), at)
        return _best(lambda places: readings[places], common_orders(order), orders.size, strides=(1,))
    curves = [(count, _curve(kind, relation, order)) for kind, count in counts.items()]

    def value(places: IntArray) -> FloatArray:
        # One product a kind: charged singly, at once or replayed, it reads the same to the last bit.
        moments = sum((count * curve.at(places) for count, curve in curves), np.zeros(places.size))
        return read(orders[places], moments, at)

    return _best(value, common_orders(order), orders.size)


class _Curve:
    """The cost of one run of a kind at the requested orders. The others are not computed."""

    def __init__(self, kind: Kind, relation: Relation, orders: FloatArray) -> None:
        self._kind, self._relation, self._orders = kind, relation, orders
        self._values = np.full(orders.size, np.nan)

    def at(self, places: IntArray) -> FloatArray:
        """λ·D_{λ+1} at the orders of these places."""
        missing = places[np.isnan(self._values[places])]
        if missing.size:
            self._values[missing] = self._compute(self._orders[missing])
        return self._values[places]

    def _compute(self, orders: FloatArray) -> FloatArray:
        kind = self._kind
        out = np.empty(orders.size)
        far = np.zeros(orders.size, dtype=np.bool_)
        if isinstance(kind.atom, GaussianEvent):
            # Where even the unsampled cost is this far out, it replaces the sampled one: no statement is read there.
            far = orders + 1 > 10 * MAX_EPSILON * kind.atom.noise_multiplier * kind.atom.noise_multiplier
        # ceil: a rate of 0 stays 0, any other becomes 1.
        for part, rate in ((~far, kind.rate), (far, min(1.0, math.ceil(kind.rate)))):
            if part.any():
                out[part] = kind_moments(Kind(kind.atom, rate), orders[part], self._relation)
        return out


@lru_cache(maxsize=256)
def _curve(kind: Kind, relation: Relation, order: float | None) -> _Curve:
    return _Curve(kind, relation, orders_of(order))


@lru_cache(maxsize=256)
def _closed(kind: Kind, relation: Relation, order: float | None) -> FloatArray:
    return kind_moments(kind, orders_of(order), relation)


def _best(
    value: Callable[[IntArray], FloatArray], common: int, size: int, strides: tuple[int, ...] = (24, 4, 1)
) -> tuple[float, int]:
    """The least value over `size` places, of a function that falls and then rises, and how many places stand for it.

    Nowhere below its true minimum. By strides, each around the best of the one before, a first answer costs 40 orders,
    not 430. The places after the common ones, with up to 2²⁰ terms each, are asked only where the last of these is the
    best.
    """
    min_value, place = _best_between(value, 0, common - 1, strides)
    if place < common - 1 or common == size:
        return min_value, common
    return min(min_value, _best_between(value, common, size - 1, strides)[0]), size


def _best_between(
    value: Callable[[IntArray], FloatArray], first: int, last: int, strides: tuple[int, ...]
) -> tuple[float, int]:
    low, high, best, values = first, last, first, np.array([math.inf])
    for stride in strides:
        places = np.array(sorted({*range(low, high + 1, stride), high}))
        values = value(places)
        best = int(places[int(np.argmin(values))])
        low, high = max(first, best - stride), min(last, best + stride)
    return float(values.min()), best
