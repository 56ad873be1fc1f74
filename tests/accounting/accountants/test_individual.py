"""The individual filter: its bound, permanence, both ways to treat sampling, and what a hidden coin can do."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import mpmath
import numpy as np
import pytest

from accounting import Definition, InvalidArgument, log_moment
from accounting.accountants.individual import FilterSpec, IndividualFilter

ORDER, DELTA, LIMIT = 8.0, 1e-5, 2.0


def a_filter(members: int = 4, limit: float = LIMIT) -> IndividualFilter:
    return IndividualFilter(FilterSpec(order=ORDER, delta=DELTA, limit_epsilon=limit), members=members)


def bound(limit: float = LIMIT) -> float:
    # Canonne, Kamath & Steinke 2020, Proposition 12, solved for the log-moment at Rényi order a.
    a = ORDER + 1
    return (a - 1) * (limit - math.log((a - 1) / a)) + math.log(DELTA) + math.log(a)


def test_everybody_leaves_exactly_when_the_next_step_would_pass_the_bound() -> None:
    norms = np.array([0.05, 0.2, 0.5, 1.0])
    each = np.asarray(log_moment(ORDER, norms, noise_std=3.0, sampling_rate=1.0))
    expected = np.floor(bound() / each).astype(int)
    accounting_sample, taken = a_filter(), np.zeros(4, dtype=int)
    for _ in range(int(expected[1]) + 5):
        taken += accounting_sample.admit(norms, noise_std=3.0, sampling_rate=1.0)
    assert taken[1:].tolist() == expected[1:].tolist()
    assert taken[0] == int(expected[1]) + 5 < expected[0]


def test_who_has_room_for_the_worst_is_never_refused_and_stays_within_the_bound() -> None:
    draw, accounting_sample = np.random.default_rng(1), a_filter(members=6)
    worst = float(log_moment(ORDER, 1.0, noise_std=3.0, sampling_rate=1.0))
    for _ in range(60):
        spent = np.array(accounting_sample.state()["spent"])
        room = accounting_sample.has_room(noise_std=3.0, sampling_rate=1.0, max_distance=1.0)
        assert room.tolist() == (spent + worst <= bound()).tolist()
        norms = draw.uniform(0, 1, int(room.sum()))
        assert accounting_sample.admit(norms, noise_std=3.0, sampling_rate=1.0, max_distance=1.0, measured=room).all()
    assert not room.any()
    assert max(accounting_sample.state()["spent"]) <= bound() < min(accounting_sample.state()["spent"]) + worst
    with pytest.raises(InvalidArgument, match="max_distance"):
        accounting_sample.has_room(noise_std=3.0, sampling_rate=1.0, max_distance=math.nan)


@pytest.mark.parametrize(("limit", "releases"), [(50.0, 10**9), (60.0, 10**7), (20.0, 10**9)])
def test_the_sampler_s_own_error_comes_off_delta(limit: float, releases: int) -> None:
    """n(1 + e^ε)·10⁻⁴⁰, in 60 digits; where it is too small to change the float, the bound's rounding covers it."""
    spec = FilterSpec(order=ORDER, delta=DELTA, limit_epsilon=limit, releases=releases)
    with mpmath.workdps(60):
        a, left = mpmath.mpf(ORDER) + 1, mpmath.mpf(DELTA) - releases * (1 + mpmath.exp(limit)) * mpmath.mpf("1e-40")
        exact = (a - 1) * (limit - mpmath.log((a - 1) / a)) + mpmath.log(left) + mpmath.log(a)
        assert spec.bound <= exact
    assert spec.bound == pytest.approx(float(exact), rel=1e-12)
    filter = IndividualFilter(spec, members=1)
    filter.admit([0.1], noise_std=3.0, sampling_rate=1.0)
    proof = filter.certificate()
    assert (proof.delta, "taken to be exact" in proof.assumption) == (DELTA, False)
    # Read at the limit itself, δ is the limit's again.
    assert filter.delta_for(limit) == pytest.approx(DELTA, rel=1e-9)


def test_a_limit_that_leaves_no_room_for_the_sampler_s_error_says_so() -> None:
    filter = IndividualFilter(FilterSpec(order=ORDER, delta=DELTA, limit_epsilon=80.0, releases=10**6), members=1)
    assert "the noise is taken to be exact" in filter.certificate().assumption


def test_nobody_takes_part_in_more_releases_than_were_counted_for() -> None:
    filter = IndividualFilter(FilterSpec(order=ORDER, delta=DELTA, limit_epsilon=LIMIT, releases=2), members=2)
    step = {"noise_std": 50.0, "sampling_rate": 1.0, "max_distance": 1.0}
    for _ in range(2):
        assert filter.has_room(**step).all()
        assert filter.admit([0.1, 0.2], **step).all()
    assert not filter.has_room(**step).any()
    assert not filter.admit([0.1, 0.2], **step).any()


def test_who_is_excluded_stays_excluded() -> None:
    accounting_sample = a_filter(members=2)
    first = accounting_sample.admit([1.0, 0.1], noise_std=0.5, sampling_rate=1.0)
    later = accounting_sample.admit([1e-6, 0.1], noise_std=5.0, sampling_rate=1.0)
    assert first.tolist() == [False, True]
    assert later.tolist() == [False, True]


def test_unsampled_records_are_free_only_when_the_sampled_pay_in_full() -> None:
    visible, secret = a_filter(members=2), a_filter(members=2)
    mask, rate = np.array([True, False]), 0.1
    for _ in range(3):
        visible.admit([0.3], noise_std=4.0, sampling_rate=1.0, measured=mask)
        secret.admit([0.3], noise_std=4.0, sampling_rate=rate, max_distance=1.0, measured=mask)
    full = 3 * float(log_moment(ORDER, 0.3, noise_std=4.0, sampling_rate=1.0))
    own, worst = (3 * float(log_moment(ORDER, d, noise_std=4.0, sampling_rate=rate)) for d in (0.3, 1.0))
    assert visible.state()["spent"] == pytest.approx([full, 0.0], rel=1e-12)
    assert secret.state()["spent"] == pytest.approx([own, worst], rel=1e-12)


def test_a_hidden_coin_that_decides_who_goes_on_costs_no_more_than_the_bound() -> None:
    """The coin of round 1 decides whether the norm is known, hence whether the record fits a second time.

    All divergences of the two-round mixture, both directions, by quadrature; the filter's sums are the claim.
    """
    z = np.linspace(-12, 16, 1401)
    weight = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    for rate, small, big in itertools.product((0.1, 0.5, 0.9), (0.2, 0.8), (0.9, 1.5)):
        first, second = (np.exp(d * z - d * d / 2) for d in (small, big))
        goes_on = 1 - rate + rate * second
        # Sampled at first: small charge, takes part in round 2. Not sampled: charged at the clip norm, leaves.
        ratio = rate * np.multiply.outer(first, goes_on) + (1 - rate) * np.ones((z.size, z.size))
        mass = np.multiply.outer(weight, weight)
        claim = sum(float(log_moment(ORDER, d, noise_std=1.0, sampling_rate=rate)) for d in (small, big))
        for power in (ORDER + 1, -ORDER):
            assert math.log(float((mass * ratio**power).sum())) <= claim + 1e-9


def test_the_certificate_is_the_same_on_every_path() -> None:
    quiet, loud = a_filter(), a_filter()
    assert quiet.epsilon() == 0
    quiet.admit(np.zeros(4), noise_std=1.0, sampling_rate=1.0)
    loud.admit(np.ones(4), noise_std=1.0, sampling_rate=1.0)
    assert quiet.certificate() == loud.certificate()
    assert quiet.certificate().definition is Definition.INDIVIDUAL
    assert quiet.epsilon() == LIMIT


def test_state_survives_json() -> None:
    accounting_sample = a_filter()
    for d in (0.1, 0.4):
        accounting_sample.admit(np.array([0.1, 0.2, 1 / 3, d]), noise_std=1.0, sampling_rate=1.0)
    twin = IndividualFilter.restore(json.loads(json.dumps(accounting_sample.state())))
    assert twin.state() == accounting_sample.state()
    assert twin.certificate() == accounting_sample.certificate()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("distances", {"distances": [0.1, 0.2]}),
        ("distances", {"distances": [0.1, 0.2, 0.3, math.nan]}),
        ("distances", {"distances": [0.1, 0.2, 0.3, -0.0]}),
        ("distances", {"distances": [0.1, 0.2, 0.3, 2.0], "max_distance": 1.0}),
        ("noise_std", {"noise_std": 0.0}),
        ("sampling_rate", {"sampling_rate": 1.5}),
        ("measured", {"measured": np.array([True, False])}),
        ("max_distance", {"distances": [0.1], "sampling_rate": 0.5, "measured": np.eye(4, dtype=bool)[0]}),
        ("max_distance", {"max_distance": math.nan}),
    ],
)
def test_bad_input_is_named_and_nothing_is_charged(name: str, call: dict[str, Any]) -> None:
    accounting_sample = a_filter()
    before = accounting_sample.state()
    with pytest.raises(InvalidArgument) as error:
        accounting_sample.admit(**({"distances": [0.1, 0.2, 0.3, 0.4], "noise_std": 1.0, "sampling_rate": 1.0} | call))
    assert error.value.argument == name
    assert accounting_sample.state() == before


def test_a_limit_without_room_is_refused() -> None:
    assert bound(0.5) < 0
    with pytest.raises(InvalidArgument, match="limit_epsilon"):
        a_filter(limit=0.5)
