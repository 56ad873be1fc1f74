"""The best order: against the least of all orders, also beyond the common ones."""

from __future__ import annotations

import pytest

from accounting.accountants.renyi import ORDERS, best_reading, common_orders, orders_of
from accounting.mechanisms.conversion import epsilons_of
from accounting.mechanisms.events import GaussianEvent, Kind, LaplaceEvent, kind_moments
from accounting.units import Relation


@pytest.mark.parametrize("kind", [Kind(GaussianEvent(1.1), 0.01), Kind(GaussianEvent(3.0), 1.0)])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_it_is_the_least_of_all_common_orders(kind: Kind, delta: float) -> None:
    orders = ORDERS[: common_orders(None)]
    every = epsilons_of(orders, 100 * kind_moments(kind, orders, Relation.ADD_REMOVE), delta)
    least, asked = best_reading({kind: 100}, Relation.ADD_REMOVE, None, epsilons_of, delta)
    assert least == float(every.min())
    assert asked in (orders.size, ORDERS.size)


def test_a_tiny_cost_is_read_at_orders_beyond_the_common_ones() -> None:
    least, asked = best_reading({Kind(GaussianEvent(1e3), 1.0): 1}, Relation.ADD_REMOVE, None, epsilons_of, 1e-6)
    assert asked == ORDERS.size
    assert 0 < least < 1e-2


def test_a_filter_has_one_order() -> None:
    assert orders_of(4.0).tolist() == [4.0]
    assert common_orders(4.0) == 1
    kind = Kind(LaplaceEvent(3.0), 1.0)
    moment = kind_moments(kind, orders_of(4.0), Relation.ADD_REMOVE)
    expected = float(epsilons_of(orders_of(4.0), 5 * moment, 1e-5)[0])
    assert best_reading({kind: 5}, Relation.ADD_REMOVE, 4.0, epsilons_of, 1e-5) == (expected, 1)
