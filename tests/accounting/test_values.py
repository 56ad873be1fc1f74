"""The checks every public function shares; arrays and frozen values come back from JSON as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import BayesianSpec, InvalidArgument
from accounting.values import (
    array_from_json,
    array_to_json,
    check_array,
    check_count,
    check_delta,
    check_nonnegative,
    check_number,
    check_orders,
    check_positive,
    check_rate,
    fields_to_json,
    rounded_down,
    rounded_up,
)


def test_arrays_come_back_bit_for_bit() -> None:
    array = np.array([[0.1, math.inf, 5e-324], [1e308, -0.0, 1 / 3]])
    again = array_from_json(array_to_json(array))
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    # A restored array is the caller's own, not a view of the message.
    again += 1


def test_equal_values_give_equal_text_whatever_sequence_they_were_given_as() -> None:
    one = BayesianSpec(orders=[2, 4], delta=1e-5, estimator_failure_probability=1e-6)
    other = BayesianSpec(orders=np.array([2.0, 4.0]), delta=1e-5, estimator_failure_probability=1e-6)  # type: ignore
    assert one == other
    assert json.loads(json.dumps(fields_to_json(one))) == fields_to_json(other)
    assert fields_to_json(one)["orders"] == [2.0, 4.0]
    assert fields_to_json(one)["level"] == "instance"


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        array_from_json({"shape": [3], "float64": array_to_json(np.ones(2))["float64"]})


@pytest.mark.parametrize("value", [3, 0.5, np.float32(0.5), np.int64(7), 0])
def test_numbers_of_every_kind_are_numbers(value: float) -> None:
    assert check_number("x", value) == float(value)


@pytest.mark.parametrize("value", [True, np.bool_(True), "1", None, [1.0], 1j, float("nan"), -0.0, np.float64("-0.0")])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^x: "):
        check_number("x", value)


def test_infinity_is_refused_unless_it_is_meant() -> None:
    with pytest.raises(InvalidArgument, match="infinite"):
        check_number("x", math.inf)
    assert check_number("x", math.inf, finite=False) == math.inf


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_positive, 0.0),
        (check_nonnegative, -1e-300),
        (check_rate, 1.0000001),
        (lambda name, value: check_delta(value, name), 1.0),
        (lambda name, value: check_delta(value, name), 0.0),
        (check_count, 0),
        (check_count, 1.0),
        (check_count, True),
        (check_array, []),
        (check_array, [[1.0]]),
        (check_array, ["1"]),
        (check_array, [True]),
        (check_array, [float("inf")]),
        (check_array, [-1.0]),
        (lambda name, value: check_orders(value, name), [1.0, 1.0]),
        (lambda name, value: check_orders(value, name), [0.0]),
    ],
)
def test_each_check_names_the_argument(check: Callable[[str, object], object], value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^x: ") as refused:
        check("x", value)
    assert refused.value.argument == "x"
    assert isinstance(refused.value, ValueError)


@given(st.integers(10**6, 10**7 - 1), st.integers(-30, 20), st.sampled_from([0.0, math.inf]))
def test_rounding_to_digits_never_passes_the_number_itself(digits: int, exponent: int, neighbour: float) -> None:
    """Beside a number of seven digits a product with a power of ten would round to it."""
    value = math.nextafter(float(f"{digits}e{exponent}"), neighbour)
    low, high = rounded_down(value, 7), rounded_up(value, 7)
    assert low <= value <= high
    assert Fraction(high) - Fraction(low) <= Fraction(value) * Fraction(1, 10**6) * Fraction(1 + 1e-9)
    assert all(float(f"{end:.6e}") == end for end in (low, high))
