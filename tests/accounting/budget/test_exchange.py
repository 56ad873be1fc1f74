"""The events of a ledger: they give the numbers that the study states, here and by dp-accounting."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from dp_accounting import pld

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.accounts import FixedPlanLimit
from accounting.budget.budget import Budget
from accounting.budget.exchange import ReleasedEvents, budget_events, ledger_events
from accounting.budget.ledger import Entry, LedgerError
from accounting.errors import InvalidArgument
from accounting.mechanisms.events import (
    DiscreteGaussianEvent,
    GaussianEvent,
)
from accounting.mechanisms.interchange import to_dp_accounting
from accounting.plan.limits import HistogramRelease
from accounting.plan.queries import EvaluationPlan, QueryPlan
from accounting.plan.schedule import NoiseStage
from tests.accounting.budget.plans import ask, cost, fixed, mixed, plan, statistics
from tests.factories.ledgers import after, opened


def ledger(study: Any, rounds: int) -> list[Entry]:
    entries = opened(study)
    for number in range(1, rounds + 1):
        entries.append(after(entries, "reserved", number))
        entries.append(after(entries, "charged-in-full", number, reason="updates-lost"))
    return entries


def events_of(borne: ReleasedEvents) -> Any:
    """The events, one after another."""
    return borne.event.events  # pyright: ignore[reportAttributeAccessIssue]


def test_the_events_of_an_exported_ledger_have_the_epsilon_that_it_states() -> None:
    entries = ledger(plan(), 3)
    # One classical limit of two: the Bayesian one is charged by what hospitals report.
    (borne,) = ledger_events([entry.to_dict() for entry in entries])
    (repeated,) = events_of(borne)
    assert repeated.count == 6
    assert (repeated.event.sampling_rate, repeated.event.event.noise_multiplier) == (0.1, pytest.approx(2.0))
    account = ClassicalAccountant(delta=borne.limit.delta, method="rdp", order=8.0, relation=borne.relation)
    account.compose(borne.event)
    budget = Budget(plan())
    for number in (1, 2, 3):
        budget.reserve(number)
        budget.settle(number, None)
    assert budget_events(budget) == [borne]
    assert account.epsilon() == pytest.approx(budget.accounts[1].epsilon(), rel=1e-9)
    peer = pld.PLDAccountant(value_discretization_interval=1e-3)
    peer.compose(to_dp_accounting(borne.event))
    tight = ClassicalAccountant(delta=1e-5)
    tight.compose(borne.event)
    assert tight.epsilon() == pytest.approx(peer.get_epsilon(1e-5), rel=2e-3)


def test_a_ledger_that_was_changed_has_no_events() -> None:
    entries = ledger(plan(), 2)
    with pytest.raises(LedgerError):
        ledger_events([entries[0], *entries[2:]])
    with pytest.raises(LedgerError):
        ledger_events([dataclasses.replace(entries[0], sha256="0" * 64)])
    assert ledger_events(ledger(plan(), 0)) == []


def test_the_events_of_a_whole_plan_have_the_epsilon_of_the_plan() -> None:
    schedule = (NoiseStage(10, 1.5), NoiseStage(20, 1.0))
    study = fixed(30, share=0.1, noise_schedule=schedule, noise_multiplier=3.0)
    budget = Budget(study)
    (whole,) = budget_events(budget, planned=True)
    *stages, questions = events_of(whole)
    assert [(stage.count, stage.event.event.noise_multiplier) for stage in stages] == [
        (10, pytest.approx(4.5)),
        (20, pytest.approx(3.0)),
    ]
    assert isinstance(questions, GaussianEvent)
    account = ClassicalAccountant(delta=1e-5)
    account.compose(whole.event)
    (limit,) = budget.accounts
    assert isinstance(limit, FixedPlanLimit)
    # The plan takes the rounding of the noise off δ, and the accountant adds what a grid may cost.
    assert account.epsilon() == pytest.approx(limit.trained, rel=1e-3)
    assert budget_events(budget) == []


def test_patients_who_are_set_aside_may_lose_the_limit_by_a_whole_plan() -> None:
    budget = Budget(fixed(10, queries=QueryPlan(50, 100, None, EvaluationPlan()), epsilon=2.0))
    whole = {one.bears: one.event for one in budget_events(budget, planned=True)}
    account = ClassicalAccountant(delta=1e-5)
    account.compose(whole["evaluated"])
    # The rounding of their noise comes off δ, and the most Σ Δ²/s² has seven digits.
    assert 2.0 * (1 - 1e-4) <= account.epsilon() <= 2.0 * (1 + 1e-6)


@pytest.mark.parametrize("entries", ["x", b"x", None, 3, {}, {"entries": []}])
def test_what_is_no_list_of_entries_is_refused(entries: Any) -> None:
    with pytest.raises(InvalidArgument, match="must be a list of ledger entries"):
        ledger_events(entries)


@pytest.mark.parametrize("entry", ["x", None, 3, ["sequence"]])
def test_what_is_no_entry_is_refused(entry: Any) -> None:
    with pytest.raises(LedgerError, match="an entry is a JSON object"):
        ledger_events([entry])


def test_questions_are_borne_by_the_patients_whom_they_are_about() -> None:
    budget = Budget(statistics())
    ask(budget, cost(20.0), cost(20.0))
    (borne,) = budget_events(budget)
    assert borne.bears == "all"
    (event,) = events_of(borne)
    assert isinstance(event.event, DiscreteGaussianEvent)
    assert (event.count, event.event.noise_std / event.event.sensitivity) == (2, pytest.approx(20.0))
    split = Budget(mixed(queries=QueryPlan(50, 100, None, EvaluationPlan())))
    ask(split, cost(20.0), cost(30.0, bears="evaluated"))
    # Patients who are set aside bear the questions about all, too.
    assert {one.bears: len(events_of(one)) for one in budget_events(split)} == {"all": 1, "evaluated": 2}


def test_histograms_are_events_of_their_own() -> None:
    study = plan(release=HistogramRelease(std=20.0, every=1), disclosure="noised")
    (borne,) = ledger_events(ledger(study, 2))
    *_, histogram = events_of(borne)
    assert isinstance(histogram.event, DiscreteGaussianEvent)
    assert histogram.count == 2
