"""A study followed from outside, by its signed ledger."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, LedgerError
from accounting.plan.queries import QueryCost
from study_protocol.study.messages import LedgerEntry
from study_protocol.study.plan_of import plan_of
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings
from tests.factories.wire_answers import round_view
from wardround.demo import watch
from wardround.demo.processes import ProcessFailed
from wardround.demo.watch import Follower

STUDY = settings(max_steps=6, statistics={"max_queries": 3, "max_cells": 10})
COST = QueryCost(noise_std=2.0**24, sensitivity=2.0**20, cells=4).to_dict()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(watch, "METRICS_SECONDS", 0.0)


def ledger() -> list[Entry]:
    """Two rounds, a question between them, a round that was cancelled, and the end."""
    entries = opened(plan_of(STUDY), STUDY.as_json(), "demo")
    for kind, number, event in (
        ("reserved", 1, {}),
        ("settled", 1, {"report": None}),
        ("asked", 2, {"query": "ab" * 32, "cost": COST}),
        ("settled", 2, {"report": None}),
        ("reserved", 3, {}),
        ("settled", 3, {"report": None}),
        ("reserved", 4, {}),
        ("cancelled", 4, {"reason": "too-few-keys"}),
        ("finished", None, {"reason": "stopped", "report": None}),
    ):
        entries.append(after(entries, kind, number, **event))
    return entries


def operator(entries: Sequence[Entry], page: int = 3) -> Any:
    def shown(study: str, after: int) -> Any:
        part = entries[after : after + page]
        return SimpleNamespace(entries=[LedgerEntry.model_validate(entry.to_dict()) for entry in part])

    view = round_view(1, "city", received=True)
    return SimpleNamespace(
        ledger=shown, send=lambda call: view.model_copy(update={"round": int(call.target.rsplit("/", 1)[1])})
    )


def test_rounds_come_with_what_a_replay_of_the_ledger_says_was_spent() -> None:
    """As a budget that is charged by hand: the question and two rounds."""
    follower = Follower(operator(ledger()), "demo", lambda: None)
    reports = list(follower.rounds())
    assert [one.view.round for one in reports] == [1, 3, 4]
    budget = Budget.open(plan_of(STUDY))
    budget.reserve(1)
    budget.settle(1, None)
    assert reports[0].limits[0]["spent"] == budget.statements()[0]["spent"]
    budget.reserve_query(2, QueryCost.from_dict(COST))
    budget.settle(2, None)
    budget.reserve(3)
    budget.settle(3, None)
    assert reports[1].limits[0]["spent"] == budget.statements()[0]["spent"]
    # A cancelled round is free.
    assert reports[2].limits[0]["spent"] == reports[1].limits[0]["spent"]
    assert follower.entries == ledger()


def test_a_ledger_that_does_not_hang_together_is_refused() -> None:
    entries = ledger()
    with pytest.raises(LedgerError):
        list(Follower(operator([entries[0], *entries[2:]]), "demo", lambda: None).rounds())


def test_it_ends_when_somebody_who_is_needed_has_died() -> None:
    def dead() -> None:
        raise ProcessFailed("city", 1, watch_log)

    from pathlib import Path

    watch_log = Path("none.log")
    with pytest.raises(ProcessFailed, match="city"):
        next(Follower(operator(ledger()[:1]), "demo", dead).rounds())
