"""What a person is told of a cell that says nothing that was declared: the right advice, and nothing of the cell."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from study_protocol.cells import Spelling, column_of, read_days, read_numbers


@pytest.mark.parametrize(
    ("text", "spelling", "words"),
    [
        ("1.234", Spelling(), "may mean thousands: declare the decimal mark"),
        ("1,5", Spelling(), "may mean thousands: declare the decimal mark"),
        ("1.234", Spelling("comma"), "point may mean thousands, and the data set is declared with a decimal comma"),
        ("1,5", Spelling("point"), "with a comma, and the data set is declared with a decimal point"),
        # No declaration makes a number of these.
        ("1.234,5", Spelling(), "with marks or spaces between thousands: write it without"),
        ("1.234,5", Spelling("comma"), "with marks or spaces between thousands: write it without"),
        ("1.234.567", Spelling("point"), "with marks or spaces between thousands: write it without"),
        ("1\N{NO-BREAK SPACE}234", Spelling(), "with marks or spaces between thousands: write it without"),
        (
            "1\N{NARROW NO-BREAK SPACE}234,5",
            Spelling("comma"),
            "with marks or spaces between thousands: write it without",
        ),
        ("1'234", Spelling(), "with marks or spaces between thousands: write it without"),
        ("€ 12", Spelling(), "with a sign or a unit"),
        ("\N{MINUS SIGN}5", Spelling(), "with a sign or a unit"),
        ("12%", Spelling(), "with a sign or a unit"),
        ("31.12.2024", Spelling(), "declare the column as dates, and their order with --dates"),
        ("31.12.2024", Spelling(dates="dmy"), "declare the column as dates"),
        ("1e999", Spelling(), "too large"),
        ("high", Spelling(), "text"),
    ],
    ids=map(str, count()),
)
def test_of_a_text_that_is_no_number(text: str, spelling: Spelling, words: str) -> None:
    found = read_numbers(column_of(["1", text], spelling=spelling))
    assert found.wrong.tolist() == [False, True]
    assert words in found.kind
    assert text not in found.kind


@pytest.mark.parametrize(
    ("cell", "spelling", "words"),
    [
        ("31.12.2024", Spelling(), "with its year last: declare the order of day and month (--dates)"),
        ("31.12.2024", Spelling(dates="mdy"), "in another order of day and month than the declared one"),
        ("31.12.24", Spelling(dates="dmy"), "two digits: write four"),
        ("2024-02-30", Spelling(), "in no calendar"),
        ("2024-02-03 10:00 PM", Spelling(), "a time that is not understood"),
        ("2024-02-03T10:00:00Z", Spelling(), "with a time zone"),
        ("2024-02-03 10:00+02:00", Spelling(), "with a time zone"),
        ("43831", Spelling(), "a number and no date"),
        (43831, Spelling(), "a number and no date"),
        ("May", Spelling(), "text"),
    ],
    ids=map(str, count()),
)
def test_of_what_is_no_date_nobody_is_told_to_declare_dates(cell: Any, spelling: Spelling, words: str) -> None:
    found = read_days(column_of([cell], spelling=spelling))
    assert found.wrong.all()
    assert words in found.kind
    assert "declare the column as dates" not in found.kind
    assert str(cell) not in found.kind
