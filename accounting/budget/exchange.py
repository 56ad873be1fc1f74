"""The events that a study has released, by its ledger: what any accountant needs to compute a classical ε again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from accounting.budget.accounts.base import Account
from accounting.budget.accounts.fixed_plan import FixedPlanLimit
from accounting.budget.accounts.losses import most_histograms
from accounting.budget.accounts.worst_case import Charged, WorstCaseLimit
from accounting.budget.budget import Budget, replay
from accounting.budget.ledger import Entry
from accounting.errors import InvalidArgument
from accounting.mechanisms.events import (
    ComposedEvent,
    DiscreteGaussianEvent,
    Event,
    GaussianEvent,
    PoissonSampledEvent,
    SelfComposedEvent,
)
from accounting.plan.limits import LimitPlan
from accounting.plan.queries import Bears
from accounting.units import Definition, Relation
from accounting.values import check_instance


@dataclass(frozen=True)
class ReleasedEvents:
    """The releases that patients of one kind have borne under one classical limit.

    limit     of the settings
    bears     "all": patients who are trained on and asked about. "evaluated": those set aside for evaluation
    relation  the neighbouring relation that the noise multipliers belong to
    event     all releases together

    >>> from accounting import Definition, Level
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> ReleasedEvents(limit, "all", Relation.ADD_REMOVE, GaussianEvent(2.0)).event
    GaussianEvent(noise_multiplier=2.0)
    """

    limit: LimitPlan
    bears: Bears
    relation: Relation
    event: Event


def ledger_events(entries: Iterable[Entry | Mapping[str, Any]], *, planned: bool = False) -> list[ReleasedEvents]:
    """Return the events of a study's exported ledger, for each classical limit and each kind of patients.

    The chain of hashes is verified on the way. Give an `event` to `ClassicalAccountant.compose`, or through
    `to_dp_accounting` to another accountant.

    Args:
        entries: the ledger's entries, or their JSON objects, from the first one on.
        planned: the whole plan of limits with enforcement "fixed-plan", in place of what was charged so far. The ε that
            they state is that of the whole plan. Patients who are set aside may lose as much as the limit allows.

    Raises:
        InvalidArgument: `entries` is no list.
        LedgerError: they are no ledger, or a broken one.

    >>> from accounting.budget.ledger import LedgerError
    >>> try:
    ...     ledger_events([])
    ... except LedgerError as error:
    ...     print(error)
    ledger entry 0: an empty ledger opens no study
    """
    return budget_events(replay(_parsed(entries)), planned=planned)


def budget_events(budget: Budget, *, planned: bool = False) -> list[ReleasedEvents]:
    """Return the same of a budget: of a plan and what was charged to it. `planned`: as in `ledger_events`.

    >>> from accounting import Definition, Level, Observer, Plan
    >>> limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, 4.0, 1e-5, estimator_failure_probability=None)
    >>> plan = Plan(scheme="parallel", limits=(limit,), clip_norm=1.0, client_clip_norm=None, noise_multiplier=2.0,
    ...             honest_survivors=1, sampling_rate=0.1, steps_per_round=5, max_steps=200, classical_order=8.0,
    ...             bayesian=None, disclosure="at-end", release=None, observer=Observer.COORDINATOR)
    >>> budget = Budget(plan)
    >>> budget.reserve(1)
    >>> budget.settle(1, None)
    >>> [borne.event.events[0].count for borne in budget_events(budget)]
    [5]
    """
    borne: list[ReleasedEvents] = []
    for account in check_instance("budget", Budget, budget).accounts:
        if account.limit.definition is not Definition.CLASSICAL:
            continue
        relation = account.mechanism.relation if isinstance(account, WorstCaseLimit) else Relation.ADD_REMOVE
        for bears in _groups(account, planned=planned):
            events = _events_of(account, bears, planned=planned)
            if events:
                borne.append(ReleasedEvents(account.limit, bears, relation, ComposedEvent(tuple(events))))
    return borne


def _groups(account: Account, *, planned: bool) -> tuple[Bears, ...]:
    """Return the groups of patients that bear different events."""
    # Patients who are set aside bear the questions about all, too.
    sets_aside = any(True for _ in account.queries.events("evaluated")) or (
        planned and isinstance(account, FixedPlanLimit) and account.sets_aside
    )
    return get_args(Bears) if sets_aside else ("all",)


def _parsed(entries: object) -> Iterator[Entry]:
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise InvalidArgument("entries", f"must be a list of ledger entries, not {type(entries).__name__}")  # pyright: ignore[reportUnknownArgumentType]
    for entry in cast("Iterable[Entry | Mapping[str, Any]]", entries):
        yield entry if isinstance(entry, Entry) else Entry.from_dict(entry)


def _events_of(account: Account, bears: Bears, *, planned: bool) -> list[Event]:
    if planned and isinstance(account, FixedPlanLimit):
        if bears == "evaluated":
            return _questions(account.limit_squares)
        plan = account.plan
        rounds = tuple(stage.rounds for stage in plan.stages)
        whole = _training(account, Charged(rounds, most_histograms(plan, plan.rounds)))
        return [*whole, *_questions(account.question_squares)]
    trained = _training(account, account.charged) if bears == "all" and isinstance(account, WorstCaseLimit) else []
    return [*trained, *_repeated(account.queries.events("all", bears))]


def _questions(squares: float) -> list[Event]:
    # Questions whose Σ Δ²/s² is at most μ² are together at most one Gaussian release.
    return [GaussianEvent(math.nextafter(1 / math.sqrt(squares), 0.0))] if squares > 0 else []


def _training(account: WorstCaseLimit, charged: Charged) -> list[Event]:
    steps = [
        (
            PoissonSampledEvent(step.sampling_rate, GaussianEvent(step.noise_multiplier)),
            rounds * step.steps_per_round,
        )
        for step, rounds in zip(account.mechanisms, charged.rounds, strict=True)
    ]
    plan = account.plan
    if plan.release is None:
        return _repeated(steps)
    histogram = DiscreteGaussianEvent(plan.release.std, plan.rules.histogram_sensitivity)
    return _repeated([*steps, (histogram, charged.published)])


def _repeated(events: Iterable[tuple[Event, int]]) -> list[Event]:
    return [SelfComposedEvent(event, count) for event, count in events if count]
