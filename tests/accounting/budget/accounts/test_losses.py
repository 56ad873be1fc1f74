"""ε of steps and squares together: closed forms in 50 digits, and inverses."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.accounts.losses import (
    epsilon_of_losses,
    epsilon_of_releases,
    most_histograms,
    rounding_slack,
    squares_within,
    steps_of_squares,
)
from accounting.plan.limits import HistogramRelease, LimitPlan
from accounting.plan.queries import QueryPlan
from accounting.units import Definition, Level
from tests.accounting.budget.accounts.test_gaussian import gaussian_delta
from tests.accounting.budget.plans import fixed


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 50.0), st.sampled_from([1e-3, 1e-5, 1e-9]))
def test_squares_have_the_epsilon_of_one_gaussian(squares, delta):
    epsilon = epsilon_of_releases(squares, delta)
    assert gaussian_delta(mp.sqrt(mp.mpf(squares)), epsilon) <= delta
    if epsilon > 1e-6:
        assert gaussian_delta(mp.sqrt(mp.mpf(squares)), epsilon * (1 - 1e-5)) > delta * (1 - 1e-2)
    assert epsilon_of_losses(tuple(steps_of_squares(squares)), delta) == pytest.approx(epsilon, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 20.0), st.sampled_from([1e-3, 1e-5, 1e-9]))
def test_the_most_squares_fit_and_a_little_more_does_not(epsilon, delta):
    squares = squares_within(epsilon, delta)
    assert gaussian_delta(mp.sqrt(mp.mpf(squares)), epsilon) <= delta
    assert gaussian_delta(mp.sqrt(mp.mpf(squares * (1 + 1e-5))), epsilon) > delta
    # Seven digits, so that all parties name the same one.
    assert float(f"{squares:.7g}") == squares


def test_no_delta_is_no_answer():
    assert math.isinf(epsilon_of_losses(tuple(steps_of_squares(1.0)), 0.0))
    assert math.isinf(epsilon_of_releases(1.0, -1.0))
    assert squares_within(1.0, 0.0) == 0.0
    assert epsilon_of_losses((), 1e-5) == 0.0
    assert epsilon_of_releases(0.0, 1e-5) == 0.0


def test_histograms_are_counted_with_the_questions_between_them():
    limits = (
        LimitPlan(Level.INSTANCE, Definition.BAYESIAN, 2.0, 1e-5, 1e-6),
        LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 2.0, 1e-5, None, "renyi-order"),
    )
    queries = QueryPlan(7, 10, 0.1)
    study = fixed(20, limits=limits, definitions=("bayesian", "classical"), disclosure="noised",
                  release=HistogramRelease(30.0, 5), queries=queries)  # fmt: skip
    # Round numbers 1 to 27, of which five are multiples of 5, at most six in any window that counts.
    assert most_histograms(study, 20) == 6
    assert most_histograms(study, 2) == 2
    assert most_histograms(fixed(), 20) == 0


def test_the_rounding_of_all_noise_is_far_below_delta_at_usual_limits():
    # Of d numbers on a grid of 2^14·√d steps to a deviation, at least 2^16: 1e-3/(2^14·√d)^4 each (lattice.py). Of
    # gradients of 1e8 numbers with 2^22 steps less. Twice for ε = 0.
    largest = max(
        *(d * 1e-3 / (2.0**14 * max(4.0, math.sqrt(d))) ** 4 for d in (1, 15, 16, 17, 10**6)), 1e8 * 1e-3 / 2.0**88
    )
    assert 2 * 100 * largest <= rounding_slack(fixed(100), 0.0) < 2.4 * 100 * largest
    assert rounding_slack(fixed(100), 2.0) < 1e-17
