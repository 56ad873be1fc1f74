"""Cells as they are stored: taken, joined, written as texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.cells import (
    Column,
    Spelling,
    column_of,
    read_categories,
    read_days,
    read_numbers,
)
from study_protocol.cells.stored import StoredCells, day_text
from tests.factories.cells import CELLS, SPELLINGS


@given(st.lists(st.lists(CELLS, max_size=4), min_size=1, max_size=4), SPELLINGS)
def test_columns_that_are_joined_say_what_each_of_them_says(parts: list[list[Any]], spelling: Spelling) -> None:
    columns = [column_of(cells, spelling=spelling) for cells in parts]
    together = Column.joined(columns)
    for read in (read_numbers, read_days):
        assert read(together).values.tobytes() == b"".join(read(one).values.tobytes() for one in columns)
    names = ("744", "3", "NA", "True")
    assert read_categories(together, names).places.tolist() == [
        place for one in columns for place in read_categories(one, names).places.tolist()
    ]


def test_rows_are_taken_in_any_order_by_places_by_marks_and_by_slices() -> None:
    column = StoredCells.of_texts(["a", None, "b", "a"])
    assert column.take([3, 1]).tolist() == ["a", None]
    assert column[np.array([True, False, True, False])].tolist() == ["a", "b"]
    assert column[1:3].tolist() == [None, "b"]
    assert column[2] == "b"
    assert column.take([]).tolist() == []
    assert column.empty.tolist() == [False, True, False, False]


def test_few_rows_of_many_words_keep_their_words_alone() -> None:
    column = StoredCells.of_texts([f"word {place}" for place in range(100)])
    few = column.take([7, 3, 7])
    assert few.tolist() == ["word 7", "word 3", "word 7"]
    assert few.words is not None
    assert few.words.tolist() == ["word 3", "word 7"]
    assert few.bytes < column.bytes


def test_texts_are_cleaned_and_nothing_is_left_of_an_empty_one() -> None:
    column = StoredCells.of_texts([" a ", "\u200b", "a\u0308", ""])
    assert column.tolist() == ["a", None, "\u00e4", None]


def test_stored_numbers_are_written_in_their_own_digits_with_the_declared_mark() -> None:
    numbers = StoredCells(np.array([36.6, 1e-05, np.nan], np.float32), spelling=Spelling(decimal="comma"))
    assert numbers.as_texts.tolist() == ["36,6", "0,00001", None]
    whole = StoredCells(np.array([1, 2]), absent=np.array([False, True]))
    assert (whole.tolist(), whole.as_texts.tolist()) == ([1, None], ["1", None])
    days = StoredCells(np.array(["2020-01-05", "NaT"], "datetime64[us]"), absent=np.array([False, True]))
    assert days.as_texts.tolist() == ["2020-01-05", None]


def test_columns_of_different_types_are_joined_as_texts_and_equal_ones_as_they_are() -> None:
    numbers = StoredCells(np.array([1.5, np.nan]))
    assert StoredCells.joined([numbers, numbers]).values.dtype == np.float64
    mixed = StoredCells.joined([numbers, StoredCells(np.array([3]))])
    assert (mixed.is_text, mixed.tolist()) == (True, ["1.5", None, "3"])
    masked = StoredCells(np.array([7]), absent=np.array([True]))
    assert StoredCells.joined([StoredCells(np.array([3])), masked]).tolist() == [3, None]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("2020-01-05T00:00:00.000000", "2020-01-05"),
        ("2020-01-05T10:30:00.000000", "2020-01-05T10:30:00"),
        ("2020-01-05T10:30:00.250000", "2020-01-05T10:30:00.25"),
        ("2020-01-05T00:00:00.000001", "2020-01-05T00:00:00.000001"),
    ],
)
def test_a_date_is_written_without_what_says_nothing(written: str, text: str) -> None:
    assert day_text(written) == text
