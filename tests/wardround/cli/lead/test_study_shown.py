"""A study's state and its rounds in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from study_protocol.study.messages import RoundView, Study
from wardround.cli.lead.study_shown import after_pause, enrolled, round_row, state_in_words


def study(**values: Any) -> Study:
    since = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    first = {"study": "sepsis", "state": "running", "state_since": since, "clients": 2, "invited": 3}
    return Study.model_construct(**{**first, "pause_reason": None, "stop_reason": None, "resumed_at": None, **values})


def test_a_state_names_its_reason() -> None:
    assert state_in_words(study()) == "running"
    assert state_in_words(study(state="finished", stop_reason="stopped")).startswith("finished: stopped")
    assert "resumed by itself" in state_in_words(study(resumed_at=datetime(2026, 1, 2, tzinfo=UTC)))
    assert enrolled(study()) == "2 of 3 invited have enrolled"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("questions-first", "wardround study train sepsis"),
        ("too-few-clients", "It resumes by itself"),
        ("operator", "wardround study resume sepsis"),
    ],
)
def test_a_pause_says_how_the_study_goes_on(code: str, advice: str) -> None:
    assert advice in after_pause(study(state="paused"), code)


def test_a_rounds_row_names_hospitals_that_are_missing() -> None:
    view = RoundView.model_validate(
        {
            "round": 3,
            "state": "abandoned",
            "reason": "too-few-clients",
            "started_at": "2026-01-02T03:04:05Z",
            "deadline": "2026-01-02T04:04:05Z",
            "ended_at": None,
            "model_version": None,
            "metrics": None,
            "spent": None,
            "clients": [
                {"client": "north", "state": "missing", "sha256": None, "refusal": None},
                {"client": "south", "state": "received", "sha256": "0" * 64, "refusal": None},
            ],
        }
    )
    assert round_row(view, None) == ["3", "too-few-clients", "", "", "north: missing"]
