"""Columns described by public numbers: what comes out for every form, and nothing fitted to the records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.data import DataError
from client_sdk.tasks.tables import CategoryColumn, NumberColumn, encode_columns, read_columns

FORMS = {
    "column.age": "18..90",
    "column.chol": " 100 .. 400 ; missing=240 ",
    "column.pain": "1|2.0|none",
    "column.thal": "3|6; missing",
    "label": "not a column",
}
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_the_four_forms_in_the_order_of_their_names() -> None:
    assert read_columns(dict(reversed(FORMS.items()))) == (
        NumberColumn("age", 18.0, 90.0, None),
        NumberColumn("chol", 100.0, 400.0, 240.0),
        CategoryColumn("pain", ("1", "2", "none"), missing=False),
        CategoryColumn("thal", ("3", "6"), missing=True),
    )


def test_the_widths_are_those_of_what_is_encoded() -> None:
    columns = read_columns(FORMS)
    data = {
        "age": np.array([54.0, 90.0]),
        "chol": np.array([np.nan, 400.0]),
        "pain": np.array(["1", "none"], dtype=object),
        "thal": np.array([6.0, np.nan]),
    }
    found = encode_columns(columns, data)
    assert found.shape == (2, sum(column.width for column in columns))
    np.testing.assert_allclose(found[0], [0, -1 / 15, 1, 1, 0, 0, 0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(found[1], [1, 1, 0, 0, 0, 1, 0, 0, 1], atol=1e-12)
    with pytest.raises(DataError, match=r"\['pain', 'thal'\]"):
        encode_columns(columns, {name: data[name] for name in ("age", "chol")})


@given(FINITE, FINITE, st.lists(FINITE, min_size=1))
def test_numbers_stay_in_the_interval_in_order_whatever_the_range(a: float, b: float, values: list[float]) -> None:
    low, high = min(a, b), max(a, b)
    if not low / 2 < high / 2:
        return
    found = NumberColumn("x", low, high, None).encode(np.sort(np.array(values)))[:, 0]
    assert (np.abs(found) <= 1 + 1e-9).all()
    assert (np.diff(found) >= 0).all()


def test_whole_numbers_are_one_category_however_they_are_written() -> None:
    column = CategoryColumn("x", ("3", "a"), missing=True)
    found = column.encode(np.array(["3.0", 3, " 3 ", "a", "", None], dtype=object))
    assert found.tolist() == [[1, 0, 0]] * 3 + [[0, 1, 0]] + [[0, 0, 1]] * 2


@pytest.mark.parametrize(
    ("values", "words"),
    [(np.array(["b", "b"], dtype=object), "2 values outside"), (np.array(["3", None], dtype=object), "1 missing")],
    ids=["unknown", "missing"],
)
def test_what_the_study_does_not_know_is_counted(values: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=f"column x: {words}"):
        CategoryColumn("x", ("3", "a"), missing=False).encode(values)
