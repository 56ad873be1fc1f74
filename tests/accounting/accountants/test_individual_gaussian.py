"""The Gaussian individual filter: each record until Σ d²/s² would pass μ², against the closed form in 60 digits."""

from __future__ import annotations

import json
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Definition, FilterSpec, InvalidArgument
from accounting.accountants.individual import IndividualFilter
from accounting.accountants.individual_gaussian import GaussianFilterSpec

DELTA, LIMIT = 1e-5, 2.0


def spec(**changed: Any) -> GaussianFilterSpec:
    return GaussianFilterSpec(**{"delta": DELTA, "limit_epsilon": LIMIT} | changed)


def exact_delta(total: mpmath.mpf, epsilon: float) -> mpmath.mpf:
    """Balle & Wang 2018, Theorem 8."""
    mu, e = mpmath.sqrt(total), mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.05, 1.0), st.floats(0.5, 30.0)), min_size=1, max_size=60),
)
@settings(max_examples=25, deadline=None)
def test_nobody_s_own_steps_pass_the_limit_in_any_order(steps: list[tuple[float, float, float]]) -> None:
    """Two records with norms and noise that change at will: what each has contributed is (ε, δ)-DP, exactly."""
    own, spent = IndividualFilter(spec(), members=2), [mpmath.mpf(0), mpmath.mpf(0)]
    with mpmath.workdps(60):
        for first, second, noise in steps:
            admitted = own.admit([first, second], noise_std=noise, sampling_rate=1.0, max_distance=1.0)
            for place, distance in enumerate((first, second)):
                if admitted[place]:
                    spent[place] += mpmath.mpf(distance) ** 2 / mpmath.mpf(noise) ** 2
        assert all(total < 1e-4 or exact_delta(total, LIMIT) <= DELTA for total in spent)


def test_everybody_leaves_at_the_last_step_that_the_closed_form_allows() -> None:
    """At noise 20 and ε 2: 100 steps at the clip norm, 402 at half of it. The best order lets 86 and 346 begin."""
    taken = {}
    for kind in (spec(), FilterSpec(order=9.2, delta=DELTA, limit_epsilon=LIMIT)):
        own, steps = IndividualFilter(kind, members=2), np.zeros(2, int)
        for _ in range(500):
            steps += own.admit([1.0, 0.5], noise_std=20.0, sampling_rate=1.0)
        taken[kind.rule] = steps.tolist()
    assert taken == {"gaussian": [100, 402], "renyi": [86, 346]}


def test_only_who_is_in_a_step_is_charged_for_it() -> None:
    own, inside = IndividualFilter(spec(), members=3), np.array([True, False, True])
    own.admit([0.5, 1.0], noise_std=4.0, sampling_rate=1.0, measured=inside)
    assert own.state()["spent"] == pytest.approx([1 / 64, 0.0, 1 / 16], rel=1e-9)
    with pytest.raises(InvalidArgument, match="sampling_rate"):
        own.admit([0.5, 0.5, 0.5], noise_std=4.0, sampling_rate=0.5, max_distance=1.0)


def test_noise_too_small_for_a_float_lets_nobody_in_for_nothing() -> None:
    """1/s² is no float here. A sum that is not a number would be above no bound, for ever."""
    own = IndividualFilter(spec(), members=2)
    assert own.admit([0.0, 1.0], noise_std=1e-200, sampling_rate=1.0).tolist() == [True, False]
    assert own.state()["spent"] == [0.0, 0.0]
    # At noise 1 one step at the clip norm is beyond ε 2: the record without a signal has that bound still.
    assert own.admit([1.0, 1.0], noise_std=1.0, sampling_rate=1.0).tolist() == [False, False]


@pytest.mark.parametrize("epsilon", [float("nan"), -1.0, "1"])
def test_delta_at_no_epsilon_is_refused(epsilon: Any) -> None:
    own = IndividualFilter(spec(), members=1)
    own.admit([0.1], noise_std=9.0, sampling_rate=1.0)
    with pytest.raises(InvalidArgument, match=r"^epsilon:"):
        own.delta_for(epsilon)


def test_what_discrete_noise_adds_comes_off_delta() -> None:
    """10⁹ releases, at most 1e-21 each on both sides: at ε 10 that is two in a hundred of a δ of 1e-6."""
    kind = spec(limit_epsilon=10.0, delta=1e-6, releases=10**9)
    with mpmath.workdps(60):
        left = mpmath.mpf("1e-6") - 10**9 * (1 + mpmath.exp(10)) * mpmath.mpf("1e-21")
        total = mpmath.mpf(kind.bound)
        assert exact_delta(total, 10.0) <= left
        assert exact_delta(total * (1 + mpmath.mpf("1e-8")), 10.0) > left
    with pytest.raises(InvalidArgument, match="discrete noise"):
        spec(limit_epsilon=15.0, delta=1e-6, releases=10**9)
    full = IndividualFilter(spec(releases=1), members=1)
    assert full.admit([0.1], noise_std=9.0, sampling_rate=1.0).all()
    assert not full.has_room(noise_std=9.0, sampling_rate=1.0, max_distance=0.1).any()


def test_the_certificate_names_the_rule_and_nobody() -> None:
    quiet, loud = (IndividualFilter(spec(), members=2) for _ in range(2))
    quiet.admit([0.0, 0.0], noise_std=1.0, sampling_rate=1.0)
    loud.admit([1.0, 1.0], noise_std=1.0, sampling_rate=1.0)
    proof = loud.certificate()
    assert proof == quiet.certificate()
    assert (proof.definition, proof.composition, proof.order) == (Definition.INDIVIDUAL, "gaussian-filter", None)
    assert (proof.used, proof.allowed) == (None, None)
    assert loud.delta_for(LIMIT) == pytest.approx(DELTA, rel=1e-6)


def test_state_survives_json_and_names_its_rule() -> None:
    own = IndividualFilter(spec(releases=100), members=2)
    own.admit([0.3, 1.0], noise_std=2.5, sampling_rate=1.0)
    state = json.loads(json.dumps(own.state()))
    twin = IndividualFilter.restore(state)
    assert (state["rule"], twin.spec, twin.state()) == ("gaussian", own.spec, own.state())
    old = IndividualFilter(FilterSpec(order=8.0, delta=DELTA, limit_epsilon=LIMIT), members=1).state()
    assert "rule" not in old
    assert IndividualFilter.restore(old).spec.rule == "renyi"
    with pytest.raises(InvalidArgument, match="rule"):
        IndividualFilter.restore(state | {"rule": "other"})
