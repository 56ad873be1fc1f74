"""Whole runs for one record, groups and exchanged records: against closed forms and against chains."""

from __future__ import annotations

import json
import math

import pytest

from accounting import (
    ClassicalAccountant,
    DiscreteLaplaceEvent,
    Event,
    FinitePair,
    GaussianEvent,
    InvalidArgument,
    LaplaceEvent,
    PairEvent,
    PoissonSampledEvent,
    Relation,
    ZCDPEvent,
)
from accounting.mechanisms.chains import chained_epsilon
from accounting.mechanisms.events import Kind
from accounting.mechanisms.run_losses import grouped, run_losses


def account(event: Event, count: int, relation: Relation = Relation.ADD_REMOVE, method: str = "pld"):
    out = ClassicalAccountant(delta=1e-5, relation=relation, method=method)  # pyright: ignore[reportArgumentType]
    out.compose(event, count)
    return out


@pytest.mark.parametrize("method", ["pld", "rdp"])
@pytest.mark.parametrize(
    ("event", "larger"),
    [
        (GaussianEvent(20.0), GaussianEvent(20.0 / 3)),
        (LaplaceEvent(60.0), LaplaceEvent(20.0)),
        (DiscreteLaplaceEvent(60.0, 1), DiscreteLaplaceEvent(60.0, 3)),
    ],
)
def test_without_sampling_a_group_moves_a_sum_together(event: Event, larger: Event, method: str) -> None:
    together = account(event, 50, method=method).epsilon_at(1e-5, group_size=3)
    assert together == pytest.approx(account(larger, 50, method=method).epsilon(), rel=1e-9)


def test_the_group_of_two_of_the_design() -> None:
    single = account(GaussianEvent(20.0), 100)
    two = single.epsilon_at(1e-5, group_size=2)
    assert two == pytest.approx(4.377, abs=1e-3)
    # Group privacy of single records is above it.
    assert chained_epsilon(single.epsilon_at, 1e-5, 2) > two * 1.03


@pytest.mark.parametrize("event", [PoissonSampledEvent(0.1, GaussianEvent(2.0)), GaussianEvent(20.0)])
def test_a_group_is_between_one_record_and_the_chain(event: Event) -> None:
    run = account(event, 60)
    two, three = (run.epsilon_at(1e-5, group_size=size) for size in (2, 3))
    assert run.epsilon() < two < three
    # (1 + e^ε)·δ(ε) of a chain of two is more than δ at its half.
    assert (1 + math.exp(two / 2)) * run.delta_for(two / 2) > 1e-5
    assert run.delta_for(two, group_size=2) <= 1e-5 * (1 + 1e-6)
    assert run.epsilon_at(1e-5, group_size=1) == run.epsilon()


def test_a_group_without_a_joint_law_is_a_chain() -> None:
    run = account(PoissonSampledEvent(0.2, LaplaceEvent(4.0)), 20)
    two = run.epsilon_at(1e-5, group_size=2)
    assert (1 + math.exp(two / 2)) * run.delta_for(two / 2) <= 1e-5 * (1 + 1e-6)
    assert 2 * run.epsilon() <= two
    moments = account(PoissonSampledEvent(0.2, LaplaceEvent(4.0)), 20, method="rdp")
    assert two <= moments.epsilon_at(1e-5, group_size=2)


def test_what_has_no_loss_distribution_leaves_it_to_renyi_divergences() -> None:
    assert run_losses({Kind(ZCDPEvent(0.1), 1.0): 1}, Relation.ADD_REMOVE) is None
    # The pair of an exchanged record is none of a removed one: no chain of removing and adding.
    pair = Kind(PairEvent(FinitePair([0.6, 0.4], [0.4, 0.6])), 0.5)
    laplace = Kind(LaplaceEvent(2.0), 0.5)
    assert run_losses({pair: 1, laplace: 1}, Relation.REPLACE_ONE) is None
    chain = run_losses({laplace: 1}, Relation.REPLACE_ONE, 2)
    assert chain is not None
    assert chain.links == 4


def test_zcdp_of_a_group_grows_with_its_square() -> None:
    assert account(ZCDPEvent(0.1), 5).epsilon_at(1e-5, group_size=2) == pytest.approx(
        account(ZCDPEvent(0.4), 5).epsilon(), rel=1e-9
    )
    assert grouped(Kind(ZCDPEvent(0.1, 0.2), 1.0), 2) is None


@pytest.mark.parametrize("size", [0, 257, 1.5])
def test_a_group_of_no_possible_size_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgument, match=r"^group_size:"):
        account(GaussianEvent(1.0), 1).epsilon_at(1e-5, group_size=size)


def test_new_events_are_written_down_and_read_again() -> None:
    run = account(PoissonSampledEvent(0.2, DiscreteLaplaceEvent(9.0, 2)), 4)
    run.compose(ZCDPEvent(0.01, 0.001))
    twin = ClassicalAccountant.restore(json.loads(json.dumps(run.state())))
    assert (twin.epsilon(), twin.state()) == (run.epsilon(), run.state())
