"""The words of a guarantee, and the checks every public function shares."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from accounting import Definition, Guarantee, InvalidArgument, Level, Observer, Relation
from accounting.units import (
    check_array,
    check_count,
    check_delta,
    check_nonnegative,
    check_number,
    check_orders,
    check_positive,
    check_rate,
)


def guarantee(**changes: object) -> Guarantee:
    values: dict[str, object] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "level": Level.INSTANCE,
        "definition": Definition.BAYESIAN,
        "relation": Relation.ADD_REMOVE,
        "observer": Observer.RELEASES,
        "assumption": "Assumes that the record is drawn from the population.",
    }
    return Guarantee(**(values | changes))  # type: ignore[arg-type]


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


def test_an_error_survives_another_process() -> None:
    error = pickle.loads(pickle.dumps(InvalidArgument("delta", "is NaN")))
    assert (error.argument, error.reason, str(error)) == ("delta", "is NaN", "delta: is NaN")


def test_a_certificate_comes_back_from_json_as_it_was() -> None:
    full = guarantee(
        orders=(1.0, 2.5), order=2.5, sampling_rate=(0.1, 0.2), max_steps=10, steps=3, beta=9e-6, gamma=1e-6
    )
    assert Guarantee.from_dict(full.to_dict()) == full
    assert full.to_dict()["level"] == "instance"
    assert full.state == "finite"


@pytest.mark.parametrize(("steps", "state"), [(0, "unbounded"), (3, "overspent")])
def test_an_infinite_epsilon_is_null_beside_its_state(steps: int, state: str) -> None:
    endless = guarantee(epsilon=math.inf, steps=steps)
    assert (endless.to_dict()["epsilon"], endless.to_dict()["state"]) == (None, state)
    assert Guarantee.from_dict(endless.to_dict()) == endless


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", -1.0), ("epsilon", float("nan")), ("delta", 0.0), ("delta", 1.0), ("assumption", " ")],
)
def test_a_certificate_that_says_nothing_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        guarantee(**{name: value})
