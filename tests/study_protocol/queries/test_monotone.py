"""Rising curves, against scikit-learn, and the places at which they are at a level."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression

from study_protocol.queries.monotone import errors_along, first_reached, isotonic, last_reached

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


@given(NUMBERS)
def test_the_nearest_rising_curve_is_that_of_scikit_learn(values: list[float]) -> None:
    found = isotonic(np.array(values))
    assert (np.diff(found) >= 0).all()
    assert found == pytest.approx(isotonic_regression(np.array(values)), rel=1e-9, abs=1e-6)


@given(NUMBERS)
def test_a_rising_curve_stays_exactly_as_it_is(values: list[float]) -> None:
    assert isotonic(np.array(sorted(values))).tolist() == sorted(values)


def test_places_lie_on_the_straight_line_between_points() -> None:
    places, values = np.array([0.0, 1.0, 2.0, 4.0, 5.0]), np.array([0.0, 2.0, 2.0, 1.0, 3.0])
    assert first_reached(places, values, 1.0) == 0.5
    assert first_reached(places, values, 2.0) == 1.0
    assert first_reached(places, values, -1.0) == 0.0
    assert last_reached(places, values, 1.0) == 4.0
    assert last_reached(places, values, 2.0) == 4.5
    assert math.isnan(first_reached(places, values, 4.0))
    assert math.isnan(last_reached(places, values, -1.0))


def test_errors_are_those_of_the_curve_over_its_slope() -> None:
    assert errors_along(lambda level: level / 5, 10.0, 3.0, 4.0) == pytest.approx((0.6, 0.8))
    assert errors_along(lambda level: level / 5, 10.0, 0.0, 0.0) == (0.0, 0.0)
