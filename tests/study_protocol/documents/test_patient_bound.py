"""Bounds for one patient from the limits of a study: the stated ones, and those that follow from a hospital's."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.documents.patient_bound import patient_bounds
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.wire.rounded import number
from tests.factories.certificates import ONE, signed


def limit(level: str = "instance", definition: str = "classical", **values: Any) -> LimitStatement:
    whole: dict[str, Any] = {
        "level": level,
        "definition": definition,
        "state": "within",
        "epsilon": 9.0,
        "delta": 1e-5,
        "spent": 1.5,
        "enforced_by": "renyi-order",
        "reserved": 0.0,
        "remaining": 7.5,
        "observer": "releases",
        "attack_success": 0.7,
        "rounds_left_estimate": 3,
        "certificate": None,
        "reports": [],
    }
    return LimitStatement.model_validate(whole | values)


def test_the_numbers_of_a_certificate_are_taken_and_a_bayesian_one_has_its_condition() -> None:
    stated = {(each.level, each.definition): each for each in ONE.certificate.limits}
    classical, bayesian = patient_bounds(ONE.certificate.limits)
    assert (classical.name, bayesian.name) == ("classical", "Bayesian")
    for bound, definition in ((classical, "classical"), (bayesian, "bayesian")):
        one = stated["instance", definition]
        assert one.spent is not None
        assert one.spent <= bound.epsilon <= one.spent * (1 + 1e-12)  # type: ignore[operator]
        assert bound.delta == one.delta
    assert classical.guess == stated["instance", "classical"].attack_success
    assert "whatever else an attacker knows" in classical.condition
    assert "on average over patients like those that the study measured" in bayesian.condition
    assert "covered by the classical number alone" in bayesian.condition
    assert "It rests on:" in bayesian.condition


@given(st.floats(0, 20))
def test_a_letter_shows_the_number_that_the_certificate_states(spent: float) -> None:
    (bound,) = patient_bounds([limit(spent=spent, reserved=0.0)])
    assert bound.epsilon == spent
    assert number(bound.epsilon) == number(spent)


@given(st.floats(0, 20), st.floats(0, 3))
def test_a_round_under_way_counts(spent: float, reserved: float) -> None:
    (bound,) = patient_bounds([limit(spent=spent, reserved=reserved)])
    assert bound.epsilon is not None
    assert spent + reserved <= bound.epsilon <= (spent + reserved) * (1 + 1e-12)


@given(st.floats(0, 30), st.floats(1e-12, 1e-2))
def test_two_changes_of_a_hospital_bound_one_change_of_a_patient(epsilon: float, delta: float) -> None:
    """P ≤ e^ε Q + δ and Q ≤ e^ε R + δ give P ≤ e^2ε R + (1 + e^ε) δ, here with 50 digits."""
    bounds = patient_bounds([limit("client", spent=epsilon, delta=delta), limit("instance", state="unbounded")])
    (bound,) = bounds
    with mpmath.workdps(50):
        exact = min(mpmath.mpf(1), (1 + mpmath.exp(mpmath.mpf(epsilon))) * mpmath.mpf(delta))
        assert bound.epsilon is not None
        assert bound.epsilon >= 2 * mpmath.mpf(epsilon)
        assert exact <= bound.delta <= exact * (1 + mpmath.mpf(10) ** -10)
        most = (mpmath.exp(2 * mpmath.mpf(epsilon)) + exact) / (1 + mpmath.exp(2 * mpmath.mpf(epsilon)))
        assert min(mpmath.mpf(1), most) <= bound.guess + mpmath.mpf(10) ** -30
    assert "two changes" in bound.condition


def test_a_limit_of_patients_is_not_replaced_by_one_of_the_hospital() -> None:
    bounds = patient_bounds([limit("client", spent=0.1), limit("instance", spent=3.0)])
    assert [bound.name for bound in bounds] == ["classical"]
    # A Bayesian number alone says nothing of every patient: the hospital's classical one is beside it.
    names = [bound.name for bound in patient_bounds([limit("client"), limit("instance", "bayesian")])]
    assert names == ["classical, from the limit for the hospital", "Bayesian"]
    assert patient_bounds([limit("client", "bayesian")]) == []


@pytest.mark.parametrize("level", ["instance", "client"])
def test_more_than_any_number_is_no_bound(level: str) -> None:
    (bound,) = patient_bounds([limit(level, spent=None, attack_success=None)])
    assert (bound.epsilon, bound.guess) == (None, 1.0)
    assert math.isfinite(bound.delta)


def test_the_coordinator_is_named_where_the_number_holds_against_it() -> None:
    (against,) = patient_bounds([limit(observer="coordinator")])
    assert "and the coordinator" in against.condition
    (readers,) = patient_bounds([limit()])
    assert "the coordinator" not in readers.condition
    assert signed().certificate.limits
