"""ρ of zCDP and μ of Gaussian differential privacy: each bounds the divergence or the δ that it stands for."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from accounting import (
    ClassicalAccountant,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    FinitePair,
    GaussianEvent,
    LaplaceEvent,
    NothingEvent,
    PairEvent,
    PoissonSampledEvent,
    RandomisedResponse,
    Relation,
    ZCDPEvent,
    gaussian_delta,
)
from accounting.mechanisms.closed_forms import gdp_square, pure_epsilon, zcdp_rho
from accounting.mechanisms.events import Kind, kind_moments, kinds_of

EVENTS: list[Event] = [
    GaussianEvent(2.0),
    DiscreteGaussianEvent(20.0, 10.0),
    LaplaceEvent(1.5),
    DiscreteLaplaceEvent(3.0, 2),
    PairEvent(RandomisedResponse(0.8)),
    PoissonSampledEvent(0.3, GaussianEvent(1.0)),
    ZCDPEvent(0.2),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_rho_bounds_the_divergence_at_every_order(event: Event, relation: Relation) -> None:
    (kind,) = kinds_of(event)
    orders = np.array([1.0, 2.0, 5.0, 30.0, 200.0])
    rho = zcdp_rho(kind, relation)
    assert (kind_moments(kind, orders, relation) <= rho * orders * (orders + 1) * (1 + 1e-8)).all()


@pytest.mark.quick(
    "add-remove-DiscreteGaussianEvent",
    "add-remove-GaussianEvent",
    "add-remove-PairEvent",
    "add-remove-PoissonSampledEvent",
    "replace-one-DiscreteGaussianEvent",
    "replace-one-GaussianEvent",
)
@pytest.mark.parametrize("event", EVENTS[:-1], ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_the_gaussian_of_mu_has_no_smaller_delta(event: Event, relation: Relation) -> None:
    (kind,) = kinds_of(event)
    mu = math.sqrt(gdp_square(kind, relation))
    account = ClassicalAccountant(delta=1e-5, relation=relation)
    account.compose(event)
    for epsilon in (0.0, 0.5, 1.5):
        assert account.delta_for(epsilon) <= gaussian_delta(mu, epsilon) * (1 + 5e-3) + 1e-9


def test_they_add_up_and_what_has_none_is_infinite() -> None:
    account = ClassicalAccountant(delta=1e-5)
    assert (account.mu(), account.rho()) == (0.0, 0.0)
    account.compose(GaussianEvent(2.0), 4)
    account.compose(NothingEvent(), 3)
    account.compose(PoissonSampledEvent(0.0, LaplaceEvent(0.1)))
    assert account.mu() == pytest.approx(1.0, rel=1e-8)
    assert account.rho() == pytest.approx(0.5, rel=1e-8)
    account.compose(ZCDPEvent(0.1))
    assert account.rho() == pytest.approx(0.6, rel=1e-8)
    assert account.mu() == math.inf
    impossible = Kind(PairEvent(FinitePair([1.0, 0.0], [0.5, 0.5])), 1.0)
    assert pure_epsilon(impossible, Relation.ADD_REMOVE) == zcdp_rho(impossible, Relation.ADD_REMOVE) == math.inf


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0, 1e4, 1e8, 1e12, 1e17, 1e150])
def test_mu_of_pure_privacy_is_right_at_every_size(noise: float) -> None:
    """Against 400 digits: near 1/2 and far out in the tail a normal quantile keeps none of a float."""
    with mpmath.workdps(400):
        epsilon = 1 / mpmath.mpf(noise)
        exact = 8 * mpmath.erfinv(mpmath.tanh(epsilon / 2)) ** 2
        square = gdp_square(Kind(LaplaceEvent(noise), 1.0), Relation.ADD_REMOVE)
        assert exact <= square <= exact * (1 + mpmath.mpf(2e-9))


@pytest.mark.parametrize("move", [2.2e-16, 1e-15, 1e-12, 1e-6])
def test_the_pure_epsilon_of_nearly_equal_laws_is_not_below_theirs(move: float) -> None:
    pair = FinitePair([0.3 + move, 0.7 - move], [0.3, 0.7])
    with mpmath.workdps(40):
        ratios = zip(pair.with_record, pair.without_record, strict=True)
        exact = max(abs(mpmath.log(mpmath.mpf(p) / mpmath.mpf(q))) for p, q in ratios)
        assert exact <= pure_epsilon(Kind(PairEvent(pair), 1.0), Relation.ADD_REMOVE) <= exact + 2e-15 + exact * 1e-10
    equal = Kind(PairEvent(FinitePair([0.3, 0.7], [0.3, 0.7])), 1.0)
    assert pure_epsilon(equal, Relation.ADD_REMOVE) == 0.0


def test_a_cost_that_no_float_can_hold_is_not_free() -> None:
    for event in (GaussianEvent(1e200), LaplaceEvent(1e300), DiscreteGaussianEvent(1e200, 1.0)):
        (kind,) = kinds_of(event)
        assert zcdp_rho(kind, Relation.ADD_REMOVE) > 0
        assert gdp_square(kind, Relation.ADD_REMOVE) > 0
