"""The section `monitoring`: windows that share no day, questions known by their document, refusals in words."""

from __future__ import annotations

import itertools
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from study_protocol.study.any_settings import settings_from
from study_protocol.study.monitoring import MonitoringSettings, window_in
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from study_protocol.terms import in_words
from study_protocol.versions import MONITORING, min_protocol
from tests.factories.monitored_studies import QUESTION, SECTION, monitored_study, monitoring
from tests.factories.settings import limit
from tests.factories.settings import settings as plain_settings


@settings(max_examples=100, deadline=None)
@given(start=st.dates(date(1990, 1, 1), date(2100, 1, 1)), length=st.integers(1, 400), count=st.integers(1, 30))
def test_windows_follow_one_another_without_a_gap(start: date, length: int, count: int) -> None:
    chosen = monitoring(first_day=start, every_days=length, windows=count)
    windows = [chosen.window(number) for number in range(1, count + 1)]
    assert windows[0].first_day == start
    assert all(one.end == two.first_day for one, two in itertools.pairwise(windows))
    assert all(one.end - one.first_day == timedelta(days=length) for one in windows)


def test_a_question_is_known_as_that_of_its_window_and_any_other_is_not() -> None:
    chosen = monitoring()
    for number in range(1, 5):
        document = chosen.document(number, 7)
        assert chosen.window_of(document) == number
        assert document.data_version == str(chosen.window(number).end)
        assert document.cost() == chosen.cost()
        assert document.cost().bears == "evaluated"
    dumped = chosen.document(2, 7).model_dump(mode="json")
    for changes in (
        {"first_record": {"column": "seen", "first_day": "2026-04-02", "end": "2026-07-01"}},
        {"first_record": {"column": "seen", "first_day": "2025-10-03", "end": "2026-01-01"}},
        {"first_record": {"column": "seen", "first_day": "2026-12-27", "end": "2027-03-27"}},
        {"first_record": {"column": "other", "first_day": "2026-04-01", "end": "2026-06-30"}},
        {"noise_multiplier": 13.2},
        {"where": [{"column": "age", "low": 60}]},
        {"model": 0},
    ):
        other = QueryDocument.model_validate(dumped | {"question": dumped["question"] | changes})
        assert window_in(other) is not None
        assert chosen.window_of(other) is None
    assert chosen.window_of(QueryDocument.model_validate(dumped | {"data_version": "1"})) is None
    count = QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 4.0}})
    assert window_in(count) is chosen.window_of(count) is None


def test_it_waits_for_outcomes() -> None:
    assert monitoring(wait_days=30).due_on(1) == date(2026, 5, 1)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"question": QUESTION | {"edges": [0.4, 0.2]}}, "rise from one to the next"),
        ({"question": QUESTION | {"edges": [0.0, 0.2]}}, "edges"),
        ({"question": QUESTION | {"noise_multiplier": 0.0}}, "noise_multiplier"),
        ({"question": QUESTION | {"prediction": "number"}}, "Extra inputs"),
        ({"windows": 400, "every_days": 3660}, "2200"),
        ({"first_day": "soon"}, "first_day"),
        ({"first_day": "2026-02-30"}, "first_day"),
        ({"windows": 0}, "windows"),
        ({"false_alarms": 0.0}, "false_alarms"),
        ({"reference": "mine"}, "reference"),
        ({"column": ""}, "column"),
    ],
)
def test_what_it_cannot_be_is_said(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MonitoringSettings.model_validate(SECTION | entries)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"statistics": None}, "monitoring needs the section statistics"),
        ({"statistics": {"max_queries": 3, "max_cells": 100}}, "max_queries must be at least 4"),
        ({"statistics": {"max_queries": 9, "max_cells": 9}}, "max_cells must be at least 13"),
        (
            {
                "evaluation": {"share": 0.2, "every": 1, "question": {"prediction": "binary", "noise_multiplier": 9.0}},
                "statistics": {"max_queries": 6, "max_cells": 100},
            },
            "max_queries must be at least 7",
        ),
        (
            {
                "bayesian": True,
                "statistics": {"max_queries": 9, "max_cells": 100},
                "limits": [limit("instance"), limit("instance", "bayesian")],
            },
            "does not go with a Bayesian limit",
        ),
    ],
)
def test_what_does_not_go_with_the_study_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        monitored_study(**options)


def test_settings_without_it_are_as_they_were() -> None:
    assert "monitoring" not in plain_settings().as_json()
    study = monitored_study()
    assert settings_from(study.as_json()) == study
    assert min_protocol(study.as_json()) == MONITORING == 4
    assert plan_of(study).queries is not None


def test_hospitals_read_it_before_they_join() -> None:
    lines = [line for subject, line in in_words(monitored_study(), mine=True) if "first record" in line]
    assert lines == ["patients whose first record (seen) is from 2026-01-01 on are never trained on"]
