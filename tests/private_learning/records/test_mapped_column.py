"""Cells of one mapped column, beside plain Python on the same texts."""

from __future__ import annotations

import numpy as np
import pytest

from private_learning.records.mapped_column import ColumnMapping
from study_protocol.cells import Column


def column(*cells: str | None) -> Column:
    return Column.of_texts(list(cells))


def test_codes_become_words_and_others_are_unmapped() -> None:
    mapping = ColumnMapping("sex", "gender", codes={"1": "male", "2": "female"}, missing=("9",))
    mapped = mapping.apply(column("1", "2", "9", None, "3"))
    assert mapped.column.as_texts.tolist()[:2] == ["male", "female"]
    assert mapped.missing.tolist() == [False, False, True, True, False]
    assert mapped.unmapped.tolist() == [False, False, False, False, True]


def test_a_number_is_added_to_before_it_is_multiplied() -> None:
    mapping = ColumnMapping("celsius", "fahrenheit", add=-32.0, multiply=5 / 9, missing=("-9",))
    mapped = mapping.apply(column("212", "32", "-9.0", "hot"))
    assert [float(text) for text in mapped.column.as_texts.tolist()[:2]] == [pytest.approx(100), 0]
    assert (mapped.missing.tolist(), mapped.unmapped.tolist()) == ([False, False, True, False], [False] * 3 + [True])


def test_days_count_from_the_other_date_whatever_the_time_of_day() -> None:
    mapping = ColumnMapping("day", "at", days_from="start")
    mapped = mapping.apply(column("2020-03-01 23:59", "2020-02-28"), column("2020-02-28 00:01", "2020-03-01"))
    np.testing.assert_array_equal(np.asarray(mapped.column), [2, -2])
    assert mapping.sources == ("at", "start")


def test_what_it_does_is_said_without_a_code() -> None:
    mapping = ColumnMapping("sex", "gender", codes={"secret": "male"}, missing=("hidden",))
    assert mapping.action == "renamed, 1 code, 1 missing code"
    same = (ColumnMapping("x", "y", multiply=18.0), ColumnMapping("x", "y", multiply=18.0, add=0.0))
    assert same[0].to_dict() == same[1].to_dict()
