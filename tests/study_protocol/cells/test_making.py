"""Columns out of what programs hold."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from study_protocol.cells import (
    DataError,
    Spelling,
    column_of,
    read_categories,
    read_numbers,
)
from study_protocol.cells.making import text_of

POINT = Spelling(decimal="point")


def test_what_is_no_cell_is_counted_by_its_column() -> None:
    with pytest.raises(DataError, match="column x: 2 of 3 cells are neither text, number, Boolean nor date"):
        column_of([1, {}, object()], name="x")
    strange = column_of([b"1", b"\xff", b"\xfe"])
    assert read_numbers(strange).wrong.tolist() == [False, True, True]
    assert read_categories(strange, ("1",)).wrong.tolist() == [False, True, True]
    assert column_of([b"ward", None, decimal.Decimal("1.234")]).tolist() == ["ward", None, "1.2340"]


def test_what_a_mask_hides_is_no_cell() -> None:
    found = read_numbers(column_of(np.ma.array([1.5, 999.0], mask=[False, True])))
    assert found.missing.tolist() == [False, True]
    assert read_numbers(column_of(np.ma.array([1, 999]))).values.tolist() == [1, 999]


def test_a_tensor_is_a_column_whatever_torch_keeps_of_it() -> None:
    assert read_numbers(column_of(torch.tensor([1.5, 2.0], requires_grad=True))).values.tolist() == [1.5, 2.0]
    with pytest.raises(DataError, match=r"a column is of type torch.bfloat16: make it one of float32"):
        column_of(torch.tensor([99.9], dtype=torch.bfloat16))


def test_a_signalling_nan_is_an_empty_cell() -> None:
    found = read_numbers(column_of([decimal.Decimal("sNaN"), decimal.Decimal("1.5")], spelling=POINT))
    assert found.missing.tolist() == [True, False]
    assert found.values[1] == 1.5


def test_a_column_stays_and_other_values_are_copied() -> None:
    values = np.array([1.0, 2.0])
    column = column_of(values)
    assert column_of(column) is column
    values[0] = 9
    assert column.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "cells", "kind"),
    [
        ([1, 2], [1, 2], "i"),
        ([1.5, 2.0], [1.5, 2.0], "f"),
        ([True, False], [True, False], "b"),
        # Of several types, each is written by itself.
        ([1, 2.5, True, None], ["1", "2.5", "True", None], "O"),
        ([2**70, 1], [str(2**70), "1"], "O"),
        ((1, 2), [1, 2], "i"),
        (np.array([1, 2], ">i4"), [1, 2], "i"),
        (np.array([90], "timedelta64[s]"), ["90 seconds"], "O"),
        ([datetime.date(2020, 1, 5), None], ["2020-01-05", None], "O"),
        ([datetime.datetime.fromisoformat("2020-01-05T10:30")], ["2020-01-05T10:30:00"], "O"),
    ],
    ids=["whole", "floats", "truths", "mixed", "large", "tuple", "big-endian", "durations", "dates", "moments"],
)
def test_values_of_one_type_keep_it_and_others_become_texts(values: Any, cells: list[Any], kind: str) -> None:
    column = column_of(values)
    assert column.tolist() == cells
    assert ("O" if column.is_text else column.values.dtype.kind) == kind


def test_series_keep_what_their_type_says_whatever_is_missing() -> None:
    whole = column_of(pd.Series([1, None, 3], dtype="Int64"))
    assert (whole.values.dtype.kind, whole.tolist()) == ("i", [1, None, 3])
    truths = column_of(pd.Series([True, None], dtype="boolean"))
    assert (truths.values.dtype.kind, truths.tolist()) == ("b", [True, None])
    words = column_of(pd.Series(["f", None, "f"], dtype="category"))
    assert words.tolist() == ["f", None, "f"]


@pytest.mark.parametrize("values", [np.zeros((2, 2)), [[1, 2], [3, 4]], np.float64(3.0)])
def test_more_or_fewer_axes_than_one_are_refused(values: Any) -> None:
    with pytest.raises(DataError, match="column x: a column is one-dimensional"):
        column_of(values, name="x")


def test_one_cell_is_written_as_a_file_would() -> None:
    comma = Spelling(decimal="comma")
    assert text_of(decimal.Decimal("36.60"), comma) == "36,60"
    assert text_of(np.float32(36.6), comma) == "36,6"
    assert text_of(math.nan, POINT) is None
    assert text_of(pd.NA, POINT) is None
    assert text_of(np.datetime64("NaT"), POINT) is None
    assert text_of(b"gr\xc3\xb6\xdfe", POINT) == "gr\u00f6\\xdfe"
    with pytest.raises(TypeError):
        text_of({}, POINT)
