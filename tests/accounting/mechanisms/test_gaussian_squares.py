"""Σ Δ²/s² as (ε, δ): against 60 digits, against dp_accounting, and with the error of discrete noise on top."""

from __future__ import annotations

import math

import mpmath
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidArgument
from accounting.mechanisms.gaussian_squares import (
    RELEASE_ERROR,
    epsilon_of_squares,
    largest_squares,
    release_slack,
    squares,
)
from accounting.mechanisms.lattice import lattice_error

LIMITS = [(0.05, 1e-6), (1.0, 1e-5), (2.0, 1e-4), (8.0, 1e-6), (20.0, 1e-3)]


def exact_delta(total: float, epsilon: float) -> mpmath.mpf:
    """Balle & Wang 2018, Theorem 8, in 60 digits."""
    with mpmath.workdps(60):
        mu, e = mpmath.sqrt(mpmath.mpf(total)), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


@pytest.mark.parametrize(("epsilon", "delta"), LIMITS)
def test_the_largest_sum_keeps_the_limit_and_hardly_more_does_not(epsilon: float, delta: float) -> None:
    total = largest_squares(epsilon, delta)
    assert exact_delta(total, epsilon) <= delta
    assert exact_delta(total * (1 + 1e-9), epsilon) > delta


@given(total=st.floats(1e-4, 50.0), delta=st.floats(1e-9, 1e-2))
@settings(max_examples=25, deadline=None)
def test_epsilon_is_never_below_the_exact_one(total: float, delta: float) -> None:
    epsilon = epsilon_of_squares(total, delta)
    assert exact_delta(total, epsilon) <= delta
    assert epsilon == 0 or exact_delta(total, epsilon * (1 - 1e-9)) > delta * (1 - 1e-6)


def test_it_is_the_composition_of_another_library() -> None:
    """28, 100 and 1,110 steps at noise 20 for ε 1, 2 and 8 at δ 1e-5."""
    for epsilon, steps in ((1.0, 28), (2.0, 100), (8.0, 1110)):
        assert steps == math.floor(largest_squares(epsilon, 1e-5) * 400)
    peer = PLDAccountant()
    peer.compose(GaussianDpEvent(20.0), 100)
    mine = epsilon_of_squares(100 * squares(1.0, 20.0), 1e-5)
    assert mine == pytest.approx(peer.get_epsilon(1e-5), abs=2e-4)


def test_the_lattice_makes_a_release_dearer_and_never_cheaper() -> None:
    """Continuous noise with a variance 1/12 of a grid step smaller, on the coarsest grid of the project."""
    with mpmath.workdps(60):
        grid = mpmath.mpf(2) ** 16
        exact = grid**2 / (grid**2 - mpmath.mpf(1) / 12) / 9
    assert exact <= squares(1.0, 3.0) <= float(exact) * (1 + 1e-14)
    assert squares(0.0, 3.0) == 0.0


@pytest.mark.parametrize("coordinates", [1, 15, 16, 17, 1000, 10**8])
def test_one_release_of_any_size_stays_within_its_error(coordinates: int) -> None:
    update = coordinates * lattice_error(2.0**14 * math.sqrt(max(coordinates, 16)))
    assert max(coordinates * lattice_error(2.0**22), update) < RELEASE_ERROR


def test_the_slack_grows_with_releases_and_epsilon() -> None:
    assert release_slack(2.0, 10**6) >= 10**6 * (1 + math.exp(2.0)) * RELEASE_ERROR
    assert release_slack(1e4, 1) > 1.0
    assert release_slack(2.0, 0) == 0.0


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_what_is_no_number_is_refused(bad: float) -> None:
    for call in (lambda: squares(bad, 1.0), lambda: squares(1.0, bad), lambda: epsilon_of_squares(bad, 1e-5)):
        with pytest.raises(InvalidArgument):
            call()


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5])
def test_extreme_limits_have_a_sum_that_keeps_them(delta: float) -> None:
    # Where the largest sum is no float any more, it is 0.
    assert largest_squares(1e-300, 1e-300) == 0.0
    small = largest_squares(1e-100, delta)
    assert small == 0 or exact_delta(small, 1e-100) <= delta
    large = largest_squares(1e300, delta)
    # At μ² ≤ ε the loss is below ε by at least μ/2 deviations.
    assert 1e200 < large < 1e300


def test_a_distance_that_underflows_is_not_free() -> None:
    assert squares(5e-324, 10.0) > 0
