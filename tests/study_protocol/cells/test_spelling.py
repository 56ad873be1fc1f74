"""How texts are written: numbers, dates, codes of missing values."""

from __future__ import annotations

import datetime
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.cells.spelling import (
    Spelling,
    are_several,
    cleaned,
    days_in,
    is_miswritten,
    number_in,
    number_text,
    numbers_in,
    plain_decimal,
    same_category,
)

LISTS = (
    *("0 -1", "-9..-1", "-9 to -1", "0/-1", "0; -1", "0 & 9", "0 and -1", "0-9", "0\u20139", "-1,"),
    *("[0", "-1]", "{0}", "(9)", "'0'", '"-9"', "\u201e0\u201c", "\u22121"),
)


CODES = (
    *("0", "-1", "+9", "0999", "99.9", "1e20", ".5", "1900-01-01", "01.01.1900", "<0.1", ">100", "E9", "9a"),
    *("-", "--", ".", "..", "?", "NA", "#N/A", "n.d.", "k.A.", "to", "not measured"),
)


@pytest.mark.parametrize("code", LISTS, ids=map(str, count()))
def test_a_list_or_a_range_is_no_code(code: str) -> None:
    assert is_miswritten(code)


@pytest.mark.parametrize("code", CODES)
def test_a_number_or_a_text_is_a_code(code: str) -> None:
    assert not is_miswritten(code)


COMMA, POINT = Spelling(decimal="comma"), Spelling(decimal="point")


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" a ", "a"), ("a\u200bb", "ab"), ("\ufeffx", "x"), ("e\u0301", "\u00e9"), ("\u2800", ""), ("\u3164", "")],
)
def test_what_is_not_drawn_is_no_part_of_a_text(text: str, shown: str) -> None:
    assert cleaned(text) == shown


@given(
    st.lists(
        st.sampled_from(["1", "-2.5", "1e3", ".5", "+7.", "007", "1.234", "1,5", "x", "", "1\n2", "TRUE", "1,23E+05"])
    )
)
def test_many_texts_are_the_numbers_of_each_or_are_left_to_it(texts: list[str]) -> None:
    for spelling in (Spelling(), COMMA, POINT):
        together = numbers_in(texts, spelling)
        each = [number_in(text, spelling) for text in texts]
        assert together is None or together.tolist() == each


def test_three_digits_behind_an_undeclared_mark_are_in_doubt_and_a_spreadsheet_s_digits_are_no_number() -> None:
    assert (number_in("1.234", Spelling()), number_in("1.234", POINT)) == (None, 1.234)
    assert (number_in("0.123", Spelling()), number_in("12.3456", Spelling())) == (0.123, 12.3456)
    assert number_in("1,23E+05", COMMA) is None
    assert number_in("FALSE", POINT) == 0


@pytest.mark.parametrize(
    ("number", "spelling", "text"),
    [
        (1e-05, Spelling(), "0.00001"),
        (1e22, Spelling(), "10000000000000000000000"),
        (1.234, Spelling(), "1.2340"),
        (1.234, POINT, "1.234"),
        (36.6, COMMA, "36,6"),
        (True, Spelling(), "True"),
    ],
)
def test_a_stored_number_is_written_so_that_it_is_read_back(number: float, spelling: Spelling, text: str) -> None:
    assert number_text(number, spelling) == text
    assert number_in(text, spelling) == number


def test_equal_plain_decimals_are_one_category() -> None:
    assert [plain_decimal(text, POINT) for text in ("3", "3.0", "3.00", "-0", "0.50")] == ["3", "3", "3", "0", "0.5"]
    for text in ("0744", "1E1", "+1", str(2**53), "x", "9" * 5000):
        assert plain_decimal(text, POINT) is None
    assert same_category("True") == same_category("true")
    assert same_category("3.0") == same_category(" 3") != same_category("03")


def moment(*parts: int) -> datetime.datetime:
    """Tables have no time zones: all are as UTC."""
    return datetime.datetime(*parts, tzinfo=datetime.UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "dates", "when"),
    [
        ("2020-02-29", None, moment(2020, 2, 29)),
        ("2020/2/9", None, moment(2020, 2, 9)),
        ("31.12.1969", "dmy", moment(1969, 12, 31)),
        ("12/31/1969 23:59:59.5", "mdy", moment(1969, 12, 31, 23, 59, 59, 500_000)),
        ("2020-01-05T06:00", None, moment(2020, 1, 5, 6)),
    ],
)
def test_days_are_counted_from_1970_as_the_standard_library_counts_them(
    text: str, dates: Any, when: datetime.datetime
) -> None:
    since = when - moment(1970, 1, 1)
    assert days_in(text, Spelling(dates=dates)) == since / datetime.timedelta(days=1)


@pytest.mark.parametrize("text", ["2021-02-29", "31.12.1969", "2020-01-05 24:00", "2020-01-05 10:00Z", "2020-01", ""])
def test_what_is_no_date_or_an_ambiguous_one_is_none(text: str) -> None:
    assert days_in(text, Spelling()) is None


def test_commas_between_codes_are_told_from_a_comma_in_a_text() -> None:
    assert are_several("0,-1", is_only=False)
    assert are_several("unknown,none", is_only=True)
    assert not are_several("unknown,none", is_only=False)
    assert not are_several("no, never", is_only=True)
    assert not are_several("one", is_only=True)
