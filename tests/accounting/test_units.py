"""The words of a guarantee."""

from __future__ import annotations

import math
import pickle

import pytest

from accounting import Definition, Guarantee, InvalidArgument, Level, Observer, Relation


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
