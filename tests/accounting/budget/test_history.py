"""The spending after every round: against the closed form, and walks that are taken up anywhere."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from accounting.budget.history import MILESTONE_ROUNDS, History, Walk, history_of
from accounting.budget.ledger import Entry, LedgerError, append
from accounting.errors import InvalidArgument
from accounting.plan.queries import QueryPlan
from accounting.plan.report import CumulativeMoments, report_to_dict
from tests.accounting.budget.plans import DELTA, cost, exact_epsilon, plan
from tests.factories.ledgers import after, opened

STUDY: dict[str, Any] = {
    "definitions": ("classical",),
    "epsilon": {"classical": 60.0},
    "noise_multiplier": 20.0,
    "sampling_rate": 1.0,
    "max_steps": 400,
}
ROUNDS = 2 * MILESTONE_ROUNDS + 3


def ledger(rounds: int = ROUNDS, **changes: Any) -> list[Entry]:
    entries = opened(plan(**STUDY | changes))
    for number in range(1, rounds + 1):
        reserved = after(entries, "reserved", number)
        members = {**reserved.body, "members": 3 + number % 4}
        entries.append(append(entries[-1], "reserved", number, members))
        entries.append(after(entries, "charged-in-full", number, reason="updates-lost"))
    return entries


def spent_after(rounds: int) -> float:
    """λ(λ + 1)/2σ² a step at order 8, converted in 40 digits."""
    return float(exact_epsilon(8, 2 * rounds * 8 * 9 / 2 / 20.0**2, DELTA))


def facts(history: History) -> tuple[Any, ...]:
    """Everything but the budget, and the state of the budget."""
    fields = {field.name: getattr(history, field.name) for field in dataclasses.fields(history)}
    return fields.pop("budget").state(), fields


def test_every_charged_round_has_the_epsilon_of_the_closed_form() -> None:
    entries = ledger()
    history = history_of(entries)
    assert [spending.round for spending in history.charged] == list(range(1, ROUNDS + 1))
    for spending in history.charged:
        (epsilon,) = spending.spent
        assert epsilon == pytest.approx(spent_after(spending.round), rel=1e-6)
    assert history.entry_count == len(entries) == 1 + 2 * ROUNDS
    assert history.kinds == {"opened": 1, "reserved": ROUNDS, "charged-in-full": ROUNDS}
    assert history.members == (3, 6)


@pytest.mark.parametrize("number", [1, MILESTONE_ROUNDS, MILESTONE_ROUNDS + 1, ROUNDS])
def test_a_walk_gives_an_earlier_round_from_the_milestone_before_it(number: int) -> None:
    entries = ledger()
    walk = Walk(entries[0])
    walk.extend(entries[1:])
    first, last = walk.since(number)
    assert last == 1 + 2 * number
    assert last - first <= 2 * MILESTONE_ROUNDS
    history = walk.history(number, entries[first:last])
    assert facts(history) == facts(history_of(entries, number))
    assert history.charged[-1].spent[0] == pytest.approx(spent_after(number), rel=1e-6)
    assert facts(walk.history()) == facts(history_of(entries))


def test_a_ledger_that_grows_is_walked_on() -> None:
    entries = ledger()
    walk = Walk(entries[0])
    assert not walk.begun
    for start in range(1, len(entries), 7):
        walk.extend(entries[start : start + 7])
    assert walk.begun
    assert walk.newest == entries[-1]
    assert facts(walk.history()) == facts(history_of(entries))


def test_questions_are_counted_apart_from_rounds_of_training() -> None:
    entries = opened(plan(**STUDY, queries=QueryPlan(5, 10)))
    for number, kind in enumerate(("reserved", "asked", "asked"), start=1):
        query = {"query": "a" * 64, "cost": cost(50.0).to_dict()} if kind == "asked" else {}
        entries.append(after(entries, kind, number, **query))
        entries.append(after(entries, "settled", number, report=None))
    history = history_of(entries)
    assert (len(history.charged), history.answered) == (3, 2)
    assert history_of(entries, 2).answered == 1


def test_entries_that_do_not_follow_are_refused() -> None:
    entries = ledger(3)
    walk = Walk(entries[0])
    walk.extend(entries[1:3])
    with pytest.raises(LedgerError):
        walk.extend(entries[4:])
    with pytest.raises(LedgerError):
        Walk(entries[1])


def test_a_round_is_not_given_from_entries_that_end_elsewhere() -> None:
    entries = ledger(4)
    walk = Walk(entries[0])
    walk.extend(entries[1:])
    with pytest.raises(LedgerError, match="is not the entry that it was"):
        walk.history(3, entries[1:5])


def test_a_round_that_was_not_charged_is_named() -> None:
    entries = ledger(2)
    walk = Walk(entries[0])
    walk.extend(entries[1:])
    for call in (lambda: walk.since(3), lambda: walk.history(3), lambda: history_of(entries, 3)):
        with pytest.raises(InvalidArgument, match="no entry charges round 3"):
            call()
    with pytest.raises(InvalidArgument, match="empty ledger"):
        history_of([])


def test_what_the_end_reveals_is_told_of_earlier_rounds_too() -> None:
    entries = opened(plan(disclosure="at-end"))
    report = report_to_dict(CumulativeMoments(0.001, (0.001, 0.001, 0.001)))
    entries.append(after(entries, "reserved", 1))
    entries.append(after(entries, "settled", 1, report=None))
    walk = Walk(entries[0])
    walk.extend(entries[1:])
    assert walk.told_by(1) == (entries[2].sha256, "")
    assert walk.history(1, entries[1:3]).budget.finished is None
    end = after(entries, "finished", reason="stopped", report=[report])
    walk.extend([end])
    assert walk.told_by(1) == (entries[2].sha256, end.sha256)
    assert walk.history(1, entries[1:3]).budget.finished == "stopped"
    assert all(math.isfinite(epsilon or 0.0) for epsilon in walk.history().charged[0].spent)
