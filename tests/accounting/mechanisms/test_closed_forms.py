"""ρ of zCDP and μ of Gaussian differential privacy: each bounds the divergence or the δ that it stands for."""

from __future__ import annotations

import math

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
