"""The window of a patient's first record: by that patient's own dates, whoever else is there."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from study_protocol.cells import Spelling, column_of
from study_protocol.queries.first_record import FirstRecord, first_days
from study_protocol.queries.variables import UnreadableColumn

START = date(2027, 1, 1)
DAYS = st.dates(date(2026, 10, 1), date(2027, 12, 31)).map(str)
ODD = st.sampled_from(["", "NA", "2027-02-30", "01.02.2027", "soon", "2027-03-31 23:59", "2027-01-01T00:00:00", "0"])
ROWS = st.lists(st.tuples(st.sampled_from("abcde"), DAYS | ODD), min_size=1, max_size=12)


def windows(length: int, count: int) -> list[FirstRecord]:
    starts = [START + timedelta(days=length * place) for place in range(count)]
    return [FirstRecord(column="seen", first_day=one, end=one + timedelta(days=length)) for one in starts]


def in_windows(rows: list[tuple[str, str]], length: int = 40) -> list[set[str]]:
    """The patients of each window."""
    names = [name for name, _ in rows]
    columns = {"seen": column_of(np.array([day for _, day in rows], object))}
    held = [window.holds(columns, names) for window in windows(length, 6)]
    for rows_held in held:
        # All rows of a patient or none.
        assert all(len({bool(h) for n, h in zip(names, rows_held, strict=True) if n == name}) == 1 for name in names)
    return [{name for name, h in zip(names, rows_held, strict=True) if h} for rows_held in held]


@settings(max_examples=200, deadline=None)
@given(rows=ROWS, length=st.integers(1, 90))
def test_a_patient_is_in_at_most_one_window_and_nobody_else_decides(rows: list[tuple[str, str]], length: int) -> None:
    chosen = in_windows(rows, length)
    assert sum(map(len, chosen)) == len(set[str]().union(*chosen))
    for name in {name for name, _ in rows}:
        alone = in_windows([row for row in rows if row[0] == name], length)
        assert [name in window for window in alone] == [name in window for window in chosen]


@settings(max_examples=100, deadline=None)
@given(rows=ROWS)
def test_a_patient_without_a_sure_first_day_is_in_no_window(rows: list[tuple[str, str]]) -> None:
    """By another way: Python's own dates."""
    days: dict[str, list[date | None]] = {}
    for name, text in rows:
        try:
            moment = datetime.fromisoformat(text) if len(text) >= len("2027-01-01") else None
        except ValueError:
            moment = None
        days.setdefault(name, []).append(None if moment is None else moment.date())
    expected: list[set[str]] = [set() for _ in range(6)]
    for name, dates in days.items():
        sure = [day for day in dates if day is not None]
        if len(sure) == len(dates) and 0 <= (place := (min(sure) - START).days // 40) < len(expected):
            expected[place].add(name)
    assert in_windows(rows) == expected


def test_a_date_is_read_by_the_declared_order_and_a_time_belongs_to_its_day() -> None:
    columns = {"seen": column_of(np.array(["31.12.2026", "01.02.2027 23:59"], object), spelling=Spelling(dates="dmy"))}
    days = first_days(columns, "seen", ["a", "b"])
    assert [date(1970, 1, 1) + timedelta(days=float(day) // 1) for day in days] == [
        date(2026, 12, 31),
        date(2027, 2, 1),
    ]


def test_a_table_without_the_column_is_refused() -> None:
    with pytest.raises(UnreadableColumn, match="no column 'seen'"):
        windows(40, 1)[0].holds({"other": column_of(np.array(["2027-01-01"], object))}, ["a"])


@pytest.mark.parametrize(
    "entries",
    [
        {"end": "2027-01-01"},
        {"end": "2026-01-01"},
        {"first_day": "1.1.2027"},
        {"first_day": "2027-01-01T00:00"},
        {"first_day": 20_000},
        {"first_day": datetime(2027, 1, 1)},  # noqa: DTZ001
        {"end": "2300-01-01"},
        {"column": ""},
    ],
)
def test_days_that_are_none_are_refused(entries: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FirstRecord.model_validate({"column": "seen", "first_day": "2027-01-01", "end": "2027-04-01"} | entries)
