"""A column in arithmetic is its numbers, and beside a text a category."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from study_protocol.cells import (
    DataError,
    column_of,
)


def test_a_column_is_its_numbers_in_arithmetic_and_a_category_beside_a_text() -> None:
    age, sex = column_of(["20", None, "21.5"], name="age"), column_of(["f", "m", None], name="sex")
    np.testing.assert_array_equal(np.clip(age, 21, 90), [21, np.nan, 21.5])
    np.testing.assert_array_equal(age / 2, [10, np.nan, 10.75])
    assert torch.equal(torch.tensor(column_of([True, False])), torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert (sex == "f").tolist() == [True, False, False]
    assert (sex != "f").tolist() == [False, True, True]
    assert sex[0] == "f"
    assert age[[2, 0]].tolist() == ["21.5", "20"]
    for use in (np.asarray, torch.tensor, lambda column: column + 1):
        with pytest.raises(DataError, match="column sex: 2 of 3 cells are no numbers"):
            use(sex)


def test_objects_of_a_column_are_its_cells_and_not_its_numbers() -> None:
    column = column_of(["f", None, "2"], name="sex")
    assert np.asarray(column, dtype=object).tolist() == ["f", None, "2"]
    assert np.asarray(column_of(["1", "2.5"]), dtype=np.float32).dtype == np.float32


def test_columns_are_compared_with_one_another_by_their_numbers() -> None:
    before, after = column_of(["1", "2", None]), column_of([1, 3, 5])
    assert (before == after).tolist() == [True, False, False]
    np.testing.assert_array_equal(np.maximum(before, after), [1, 3, np.nan])
    np.testing.assert_array_equal(after - before, [0, 1, np.nan])


def test_a_column_without_a_name_is_refused_without_one() -> None:
    with pytest.raises(DataError, match=r"^a column: 1 of 2 cells are no numbers\. The first is text"):
        np.asarray(column_of(["1", "secret"]))
