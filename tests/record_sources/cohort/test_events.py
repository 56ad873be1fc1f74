"""Events that count: by concepts, and by days from the index event."""

from __future__ import annotations

from datetime import date

from record_sources.cohort.events import ALL_DAYS
from tests.record_sources.cohort.brute_force import Staged
from tests.record_sources.cohort.staged import (
    COVERED,
    PERSON,
    one_column,
    visits,
)


def test_both_ends_of_a_window_count_and_overlapping_visits_are_each_counted() -> None:
    rows = Staged([PERSON], visits(*(("a", day) for day in (0, 0, 1, 2, 3))), COVERED)
    visit = {"of": "visit", "concepts": [1], "take": "count"}
    assert one_column(rows, visit | {"days": [0, 2]}) == [4]
    assert one_column(rows, visit | {"days": [1, 1]}) == [1]
    last = {"of": "visit", "concepts": [1], "occurrence": "last"}
    assert one_column(rows, visit | {"days": [-2, -1]}, index_event=last) == [2]
    assert one_column(rows, {"of": "visit", "concepts": [1], "take": "day"}, index_event=last) == [-3]


def test_all_days_hold_any_two_dates() -> None:
    first, last = ALL_DAYS
    apart = (date.max - date.min).days
    assert first < -apart < apart < last
