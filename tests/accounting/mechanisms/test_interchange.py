"""Events to dp_accounting and back: they stay what they are, and its accountant reads the same run."""

from __future__ import annotations

import sys

import dp_accounting
import pytest
from dp_accounting import dp_event, pld

from accounting import (
    ClassicalAccountant,
    ComposedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    FinitePair,
    GaussianEvent,
    InvalidArgument,
    LaplaceEvent,
    LaplacePair,
    NothingEvent,
    PairEvent,
    PoissonSampledEvent,
    RandomisedResponse,
    Relation,
    SelfComposedEvent,
    ZCDPEvent,
    from_dp_accounting,
    to_dp_accounting,
)

EVENTS: list[Event] = [
    NothingEvent(),
    GaussianEvent(1.1),
    LaplaceEvent(2.0),
    DiscreteLaplaceEvent(4.0, 2),
    ZCDPEvent(0.5, 0.25),
    PairEvent(RandomisedResponse(0.75)),
    PoissonSampledEvent(0.01, GaussianEvent(1.1)),
    SelfComposedEvent(LaplaceEvent(2.0), 7),
    ComposedEvent((GaussianEvent(1.1), SelfComposedEvent(PoissonSampledEvent(0.5, LaplaceEvent(3.0)), 2))),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_there_and_back_it_is_the_same(event: Event) -> None:
    assert from_dp_accounting(to_dp_accounting(event)) == event


def test_events_without_a_form_of_their_own_become_the_nearest() -> None:
    assert to_dp_accounting(DiscreteGaussianEvent(20.0, 10.0)) == dp_accounting.GaussianDpEvent(2.0)
    assert to_dp_accounting(PairEvent(LaplacePair(-2.0, 3.0))) == dp_accounting.LaplaceDpEvent(1.5)
    assert to_dp_accounting(PoissonSampledEvent(1.0, GaussianEvent(2.0))) == dp_accounting.GaussianDpEvent(2.0)


@pytest.mark.parametrize("event", [PairEvent(FinitePair([0.5, 0.5], [0.4, 0.6])), Event(), "GaussianEvent"])
def test_what_the_peer_does_not_know_is_refused(event: Event) -> None:
    with pytest.raises(InvalidArgument, match=r"^event:.*no counterpart"):
        to_dp_accounting(event)


@pytest.mark.parametrize(
    "event",
    [
        dp_accounting.NonPrivateDpEvent(),
        dp_accounting.SampledWithoutReplacementDpEvent(100, 10, dp_accounting.GaussianDpEvent(1.0)),
        dp_accounting.RandomizedResponseDpEvent(0.5, 3),
        dp_accounting.GaussianDpEvent(0.0),
        dp_event.DiscreteLaplaceDpEvent(0.0, 1),
        GaussianEvent(1.0),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_this_package_does_not_know_is_refused(event: object) -> None:
    with pytest.raises(InvalidArgument):
        from_dp_accounting(event)


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_the_peer_reads_the_same_run(relation: Relation) -> None:
    account = ClassicalAccountant(delta=1e-5, relation=relation)
    account.compose(PoissonSampledEvent(0.1, GaussianEvent(2.0)), 50)
    account.compose(GaussianEvent(20.0), 5)
    peers = dp_accounting.NeighboringRelation
    peer_relation = peers.REPLACE_ONE if relation is Relation.REPLACE_ONE else peers.ADD_OR_REMOVE_ONE
    peer = pld.PLDAccountant(peer_relation, value_discretization_interval=1e-3)
    peer.compose(account.to_dp_accounting())
    assert account.epsilon() == pytest.approx(peer.get_epsilon(1e-5), rel=2e-3)
    again = ClassicalAccountant(delta=1e-5, relation=relation)
    again.compose(from_dp_accounting(account.to_dp_accounting()))
    assert again.epsilon() == account.epsilon()


def test_without_the_peer_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.dp_event", None)
    for translate in (to_dp_accounting, from_dp_accounting):
        with pytest.raises(ModuleNotFoundError, match="pip install dp-accounting"):
            translate(NothingEvent())
