"""Sections of a site policy with the hospital's own limits: the order, and what whole studies leave of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from client_sdk.guard.limit_terms import LedgerTerms, WholePlan
from client_sdk.guard.policy_limits import IndividualLimit, Limits, LimitSection


@given(st.floats(0.01, 20), st.floats(1e-12, 1e-3))
def test_the_order_that_is_left_out_is_the_best_of_gaussian_noise(epsilon: float, delta: float) -> None:
    """Of ε = λρ + ln(1/δ)/λ with the largest ρ that keeps ε: its derivative by λ is zero there."""
    order = LimitSection(epsilon=epsilon, delta=delta).fixed_order()
    rho = (epsilon - math.log(1 / delta) / order) / order
    assert rho == pytest.approx(math.log(1 / delta) / order**2, rel=1e-9)
    assert LimitSection(epsilon=epsilon, delta=delta, order=3.0).fixed_order() == 3.0


def test_whole_studies_leave_what_they_did_not_reserve() -> None:
    section, terms = LimitSection(epsilon=3.0, delta=1e-6), LedgerTerms()
    assert section.at("instance", terms).epsilon == 3.0
    plans = [WholePlan("instance", 1.0, 1e-7, 5), WholePlan("client", 9.0, 1e-7, 5)]
    left = section.at("instance", terms, plans)
    assert (left.epsilon, left.delta) == (pytest.approx(2.0), pytest.approx(9e-7))
    # Never zero, which would be no limit.
    assert 0 < section.at("instance", terms, [WholePlan("instance", 5.0, 1e-7, 5)]).epsilon < 1e-300


def test_an_order_belongs_to_one_rule() -> None:
    with pytest.raises(ValidationError, match="order: belongs to rule"):
        Limits(rule="gaussian", instance=LimitSection(epsilon=1.0, delta=1e-6, order=2.0))
    with pytest.raises(ValidationError, match="every_norm"):
        IndividualLimit(epsilon=1.0, delta=1e-6, rule="gaussian", every_norm=True)
    assert Limits(client=LimitSection(epsilon=1.0, delta=1e-6)).by_level().keys() == {"client"}
