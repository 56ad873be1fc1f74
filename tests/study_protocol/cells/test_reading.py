"""What one cell says under a declaration, whatever type it is stored in and whatever stands beside it."""

from __future__ import annotations

import datetime
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.cells import (
    Spelling,
    column_of,
)
from study_protocol.cells.reading import read_categories, read_days, read_numbers, read_presence
from tests.factories.cells import CELLS, SPELLINGS

COMMA = Spelling(decimal="comma")
POINT = Spelling(decimal="point")


@pytest.mark.parametrize(
    ("text", "spelling", "number"),
    [
        ("1.5", Spelling(), 1.5),
        (" 1.5\u200b", Spelling(), 1.5),
        ("1,5", Spelling(), None),
        ("1,5", COMMA, 1.5),
        ("1.5", COMMA, None),
        ("1.234", Spelling(), None),
        ("1.234", POINT, 1.234),
        ("1,234", COMMA, 1.234),
        ("0.123", Spelling(), 0.123),
        ("1e3", Spelling(), 1000.0),
        ("007", Spelling(), 7.0),
        ("12_34", Spelling(), None),
        ("١٢", Spelling(), None),
        ("inf", Spelling(), None),
        ("1e999", Spelling(), None),
        ("True", Spelling(), 1.0),
        ("<5", Spelling(), None),
        ("7" * 5000, Spelling(), None),
    ],
    ids=map(str, count()),
)
def test_a_text_is_a_number_by_the_declared_mark(text: str, spelling: Spelling, number: float | None) -> None:
    for others in ([], ["x"], ["9"]):
        read = read_numbers(column_of([*others, text], spelling=spelling))
        value = read.values[-1]
        assert (None if np.isnan(value) else value) == number
        assert read.wrong[-1] == (number is None)


@given(st.lists(CELLS, min_size=1, max_size=6), SPELLINGS)
def test_what_a_cell_says_depends_on_no_other_cell(cells: list[Any], spelling: Spelling) -> None:
    names, codes = ("744", "3", "NA", "1", "True", "x"), ("-1", "2.50", "unknown", "1900-01-01")
    together = column_of(cells, spelling=spelling)
    for place, cell in enumerate(cells):
        alone = column_of([cell], spelling=spelling)
        for read in (read_numbers, read_days):
            one, all_of_them = read(alone, codes), read(together, codes)
            assert one.values.tobytes() == all_of_them.values[place : place + 1].tobytes()
            assert (one.missing[0], one.wrong[0]) == (all_of_them.missing[place], all_of_them.wrong[place])
        one, found = read_categories(alone, names, codes), read_categories(together, names, codes)
        assert (one.places[0], one.missing[0]) == (found.places[place], found.missing[place])
        assert read_presence(alone, codes)[0] == read_presence(together, codes)[place]


def test_a_code_is_compared_at_the_column_s_own_precision() -> None:
    for kind in (np.float16, np.float32, np.float64):
        read = read_numbers(column_of(np.array([99.9, 36.6, 99.8], kind)), ("99.90",))
        assert read.missing.tolist() == [True, False, False]
        assert read.values[1] == 36.6
    assert read_numbers(column_of(["99,9", "99.9"], spelling=COMMA), ("99.9",)).missing.tolist() == [True, True]
    assert not read_numbers(column_of(np.array([2**53 + 1])), (str(2**53),)).missing.any()


def test_two_spellings_are_one_category_only_as_plain_decimals_below_2_to_the_53() -> None:
    texts = ["3", "3.0", "03", "+3", "3e0", "0744", "744", str(2**53), f"{2**53}.0", str(2**53 - 1)]
    read = read_categories(column_of(texts), ("3", "744", "0744", str(2**53), f"{2**53 - 1}.0"))
    assert read.places.tolist() == [0, 0, -1, -1, -1, 2, 1, 3, -1, 4]
    whole = read_categories(column_of(np.array([3, 744, 2**53, 2**53 + 1])), ("3", "744", str(2**53)))
    assert whole.places.tolist() == [0, 1, 2, -1]
    # A stored float of this size may stand for several whole numbers.
    assert read_categories(column_of(np.array([2.0**60])), (str(2**60),)).places.tolist() == [-1]


def test_booleans_are_their_words_or_one_and_nought() -> None:
    for cells in (np.array([True, False]), ["true", "FALSE"], pd.Series([True, False], dtype="boolean")):
        column = column_of(cells)
        assert read_categories(column, ("False", "True")).places.tolist() == [1, 0]
        assert read_categories(column, ("0", "1")).places.tolist() == [1, 0]
        assert read_numbers(column).values.tolist() == [1.0, 0.0]


def test_dates_are_days_by_the_declared_order() -> None:
    day = datetime.date(2020, 5, 1)
    wanted = float((day - datetime.date(1970, 1, 1)).days)
    for cells in ([day], np.array([day], "datetime64[D]"), ["2020-05-01"], pd.to_datetime(pd.Series([day]))):
        assert read_days(column_of(cells)).values.tolist() == [wanted]
        assert read_days(column_of(cells), ("2020-05-01",)).missing.all()
        assert read_numbers(column_of(cells)).wrong.all()
        assert read_categories(column_of(cells), ("2020-05-01",)).places.tolist() == [0]
    assert read_days(column_of(["1.5.2020"])).wrong.all()
    assert read_days(column_of(["1.5.2020"], spelling=Spelling(dates="dmy"))).values.tolist() == [wanted]
    assert read_days(column_of(["5/1/2020"], spelling=Spelling(dates="mdy"))).values.tolist() == [wanted]
    assert read_days(column_of(["2020-05-01 12:00"])).values.tolist() == [wanted + 0.5]
    assert read_days(column_of(["2020-02-30", "2020-05-01 25:00", 7])).wrong.all()


@pytest.mark.parametrize("text", ["3\n0", "3\n0\n1", "1\n", "\n1", "1\r2"], ids=map(str, count()))
def test_a_cell_of_several_lines_is_one_cell(text: str) -> None:
    found = read_numbers(column_of(["5", text, "7"]))
    assert found.values[[0, 2]].tolist() == [5, 7]
    assert found.wrong.tolist() == [False, len(text.strip()) > 1, False]


@pytest.mark.parametrize(
    "code", ["-9.9", "99.9", "-1", "+999", "0999", "999.", "1e3", "999.0", ".5", "1e20", "99999999", "-999999999"]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, object, str])
def test_a_code_is_missing_however_the_study_and_the_table_write_it(code: str, dtype: type) -> None:
    values = np.array([float(code), 7.0], np.float32 if dtype is np.float32 else np.float64).astype(dtype)
    found = read_numbers(column_of(values, spelling=POINT), (code,))
    assert found.missing.tolist() == [True, False]
    assert found.values[1] == 7


def test_a_code_is_what_it_becomes_in_a_type_that_cannot_hold_it() -> None:
    # 9999 is 10000 in 16 bits; 999 in 8 bits and 99999 in 16 are nothing.
    assert read_numbers(column_of(np.array([9999, 5], np.float16)), ("9999",)).missing.tolist() == [True, False]
    assert not read_numbers(column_of(np.array([np.int8(-25)])), ("999",)).missing.any()
    assert not read_numbers(column_of(np.array([65504], np.float16)), ("99999", "9" * 400)).missing.any()


def test_a_code_that_the_stored_type_rounds_is_missing_where_presence_is_asked_for() -> None:
    stored = np.array([99999999, 7, np.nan], np.float32)
    assert read_presence(column_of(stored), ("99999999",)).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("cells", "names", "near"),
    [
        (["744", "0744", "x", None], ("0744",), [1, 0, 0, 0]),
        (["00744", "744", "7440"], ("744",), [1, 0, 0]),
        ([744, 39, 0], ("0744", "00"), [1, 0, 1]),
        ([744.0, 1.5, np.nan], ("0744",), [1, 0, 0]),
        (["JA", "ja", "Nein", "STRASSE"], ("ja", "straße"), [1, 0, 0, 1]),
        (["x", "y"], ("0744",), None),
        (["744", "0744"], ("744", "0744"), None),
        ([True, False], ("yes", "no"), None),
    ],
)
def test_what_is_a_category_but_for_capitals_or_leading_zeros_is_marked_and_stays_wrong(
    cells: list[Any], names: tuple[str, ...], near: list[int] | None
) -> None:
    read = read_categories(column_of(pd.Series(cells, dtype=object if isinstance(cells[0], str) else None)), names)
    assert (None if read.near is None else read.near.astype(int).tolist()) == near
    assert read.near is None or (read.near <= read.wrong).all()
    assert (read.places[read.wrong] == -1).all()
