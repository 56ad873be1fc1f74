"""What a hospital says while it waits, and how often."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from client_sdk.study.waiting import Waiting, Watch, waiting_for
from study_protocol.study.messages import PauseReason, RoundUnderWay, Study
from tests.factories.settings import settings

NOW = datetime.now(UTC)
CHOSEN = settings(schedule={"min_clients": 3})
ASKED_TOO = settings(schedule={"min_clients": 3}, statistics={"max_queries": 5, "max_cells": 10})


def study(**values: Any) -> Study:
    given = {
        "study": "sepsis", "title": "", "state": "running", "state_since": NOW, "pause_reason": None,
        "stop_reason": None, "settings": CHOSEN, "settings_sha256": CHOSEN.digest(), "model": None, "clients": 4,
        "invited": 4, "rounds": 6, "under_way": None, "coordinator_key": "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg",
        "created_at": NOW,
    }  # fmt: skip
    return Study.model_validate(given | values)


UNDER_WAY = RoundUnderWay(round=7, asked=4, present=3, deadline=NOW)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"state": "draft"}, "is a draft"),
        ({"state": "enrolling", "clients": 2}, "2 of 4 hospitals have enrolled, a round needs 3"),
        ({"state": "enrolling", "clients": 2, "invited": 2}, "2 of 2 hospitals have enrolled, a round needs 3"),
        ({"state": "enrolling"}, "its lead has to start it"),
        ({"state": "paused", "pause_reason": PauseReason(code="x", detail="too few")}, "is paused: too few"),
        (
            {"state": "paused", "pause_reason": PauseReason(code="questions-first", detail="…")},
            "waiting for a question: training has not begun",
        ),
        ({"under_way": UNDER_WAY}, "round 7 is under way: 3 of 4 hospitals present"),
        ({"under_way": UNDER_WAY.model_copy(update={"asked": None, "present": None})}, "round 7 is under way, updates"),
        ({"clients": 2}, "waiting for round 7: it needs 3 hospitals, and 2 take part"),
        ({}, "waiting for round 7: it is about to begin"),
        ({"settings": ASKED_TOO}, "waiting for round 7, of training or for a query: nothing has begun"),
    ],
)
def test_it_says_for_what(values: dict[str, Any], said: str) -> None:
    assert said in waiting_for(study(**values)).line()


def test_a_log_is_not_filled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    time = [0.0]
    watch = Watch(clock=lambda: time[0])
    for second in range(0, 1200, 10):
        time[0] = float(second)
        watch.waits(Waiting("round 7" if second < 100 else "round 8"))
    assert [record.getMessage() for record in caplog.records] == ["round 7", "round 8", "round 8"]


def test_a_coordinator_that_is_away_has_one_beginning() -> None:
    told: list[Waiting | None] = []
    watch = Watch(told.append)
    watch.unreachable("no answer", 0.5)
    watch.unreachable("no answer", 12.3)
    watch.unreachable(None, 0.0)
    watch.unreachable("no answer", 2.0)
    first, second, again, later = told
    assert first is not None
    assert second is not None
    assert later is not None
    assert (again, second.since) == (None, first.since)
    assert "trying again in 13 s" in second.text
    assert later.since is not first.since


def test_a_coordinator_that_was_heard_of_is_away_anew() -> None:
    told: list[Waiting | None] = []
    watch = Watch(told.append)
    watch.unreachable("no answer", 0.5)
    watch.waits(Waiting("round 7"))
    watch.unreachable("no answer", 0.5)
    first, _, later = told
    assert first is not None
    assert later is not None
    assert later.since is not first.since
