"""One declared column: the numbers that its cells become, and the faults that are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from private_learning.records import DataError, Table
from private_learning.tasks.columns import encode_columns, read_columns
from private_learning.tasks.declared_columns import CategoryColumn, Fault, NumberColumn, unknown_names
from private_learning.tasks.task import InputUse, TaskError
from study_protocol.cells import column_of, read_categories

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, FINITE, st.lists(FINITE, min_size=1))
def test_numbers_stay_in_the_interval_in_order_whatever_the_range(a: float, b: float, values: list[float]) -> None:
    low, high = min(a, b), max(a, b)
    if not low / 2 < high / 2:
        return
    found = NumberColumn("x", low, high, None).encode(np.sort(np.array(values)))[:, 0]
    assert (np.abs(found) <= 1 + 1e-9).all()
    assert (np.diff(found) >= 0).all()


@st.composite
def shaped(draw: st.DrawFn) -> NumberColumn:
    """A column with a typical range, a logarithm, or both, as settings may declare it."""
    places = sorted(draw(st.sets(st.integers(-(10**6), 10**6), min_size=4, max_size=4)))
    low, first, last, high = (place / draw(st.sampled_from([1, 1, 7, 1000])) * 1.0 for place in places)
    ends = sorted((low, first, last, high))
    typical = draw(st.sampled_from([f"; typical={ends[1]!r}..{ends[2]!r}", f"; typical={ends[0]!r}..{ends[2]!r}", ""]))
    logarithm = draw(st.sampled_from(["; log", ""])) if typical else "; log"
    try:
        (column,) = read_columns({"column.x": f"{ends[0]!r}..{ends[3]!r}{typical}{logarithm}"})
    except TaskError:
        assume(False)
        raise
    assert isinstance(column, NumberColumn)
    return column


@given(shaped(), st.lists(FINITE, min_size=1))
def test_numbers_keep_their_order_and_public_bounds_with_a_typical_range(
    column: NumberColumn, values: list[float]
) -> None:
    found = column.encode(np.sort(np.array(values)))[:, 0]
    lowest, highest = column.encode(np.array([column.low, column.high]))[:, 0]
    assert -1000 <= lowest <= -1 + 1e-9
    assert 1 - 1e-9 <= highest <= 1000
    assert (found >= lowest - 1e-9).all()
    assert (found <= highest + 1e-9).all()
    assert (np.diff(found) >= -1e-9).all()


@given(shaped(), st.lists(FINITE, min_size=2))
def test_the_encoding_of_one_record_does_not_depend_on_the_others(column: NumberColumn, values: list[float]) -> None:
    together = column.encode(np.array(values))
    alone = np.concatenate([column.encode(np.array([value])) for value in values])
    np.testing.assert_allclose(together, alone, rtol=1e-14, atol=1e-14)


def test_what_is_missing_where_nothing_may_be_is_zeros() -> None:
    columns = read_columns({"column.a": "0..400; typical=2..40; log", "column.b": "x|y; frequencies=9|1"})
    data = {"a": np.array([np.nan]), "b": np.array(["z"], dtype=object)}
    assert encode_columns(columns, data, strict=False).tolist() == [[0.0, 0.0, 0.0]]


def test_whole_numbers_are_one_category_however_they_are_written() -> None:
    column = CategoryColumn("x", ("3", "a"), missing=True)
    found = column.encode(np.array(["3.0", 3, " 3 ", "a", "", None], dtype=object))
    assert found.tolist() == [[1, 0, 0]] * 3 + [[0, 1, 0]] + [[0, 0, 1]] * 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array(["b", "b"], dtype=object), "2 of 2 values are none of the study's categories"),
        (np.array(["3", None], dtype=object), "1 of 2 values are missing"),
    ],
    ids=["unknown", "missing"],
)
def test_what_the_study_does_not_know_is_counted(values: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=f"column x: {words}"):
        CategoryColumn("x", ("3", "a"), missing=False).encode(values)


@pytest.mark.parametrize("values", [[0.0, 30.0, np.nan], ["0", "30.0", None], ["0.0", "unknown", "-1"]], ids=str)
def test_what_the_study_calls_missing_is_missing_however_it_is_written(values: list[object]) -> None:
    (column,) = read_columns({"column.bmi": "15..60; missing=30; missing-values=0|-1|unknown"})
    table = Table.of({"bmi": values})
    found = column.encode(table.columns["bmi"])
    absent = [str(value) not in ("30.0",) for value in values]
    assert found[:, 1].tolist() == absent
    np.testing.assert_allclose(found[:, 0], (30 - 37.5) / 22.5)
    assert column.use(table.columns["bmi"]) == InputUse("bmi", 3, missing=sum(absent), clipped=0)


def test_a_category_may_be_called_missing_too() -> None:
    (column,) = read_columns({"column.smoker": "no|yes; missing; missing-values=9|refused"})
    values = np.array(["no", "9.0", "refused", "yes"], dtype=object)
    assert column.encode(values).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0]]
    assert column.use(values) == InputUse("smoker", 4, missing=2, clipped=0)


def test_what_is_clipped_is_counted() -> None:
    assert NumberColumn("x", 0, 1, 0.5).use(np.array([-1, 0, 0.5, 1, 2, 3, np.nan])) == InputUse("x", 7, 1, 3)


def test_a_number_lies_between_minus_one_and_one_and_a_missing_one_in_the_middle() -> None:
    cells = np.array([10.0, 15.0, 20.0, 99.0, np.nan])
    assert NumberColumn("x", 10, 20, 12.0).encode(cells).tolist() == [
        *([-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]),
        [pytest.approx(-0.6), 1.0],
    ]
    column = NumberColumn("x", 10, 20, None)
    assert column.encoded(column.read(cells))[:, 0].tolist() == [-1.0, 0.0, 1.0, 1.0, 0.0]
    with pytest.raises(DataError, match="column x: 1 of 5 values are missing, and the study allows none"):
        column.encode(cells)


def test_dates_are_days_and_a_number_is_none() -> None:
    low, high = (float(np.datetime64(day).astype(int)) for day in ("2020-01-01", "2020-01-11"))
    column = NumberColumn("x", low, high, None, dates=True)
    assert column.encode(np.array(["2020-01-06", "2020-01-11"], "datetime64[D]")).tolist() == [[0.0], [1.0]]
    with pytest.raises(DataError, match="1 of 1 values are no dates"):
        column.encode(np.array([5.0]))


def test_a_fault_counts_its_rows_and_says_what_the_first_is() -> None:
    fault = Fault("column x", "are no numbers", np.array([False, True, True]), "is text")
    assert fault.text(2, 3) == "column x: 2 of 3 values are no numbers"
    error = fault.error
    assert "column x: 2 of 3 values are no numbers" in str(error)
    assert "row 2" in error.located(lambda rows: f"row {int(np.argmax(rows)) + 1}")


def test_unknown_names_are_listed_while_they_are_few_and_capitals_are_said() -> None:
    names = tuple(str(place) for place in range(11))
    read = read_categories(column_of(["F"]), ("f", "m"))
    near = unknown_names("column sex", "categories", ("f", "m"), read)
    assert near.problem == "are none of the study's categories f|m"
    assert near.of_first == "is one of them but for capitals or leading zeros"
    many = unknown_names("column x", "categories", names, read_categories(column_of(["z"]), names))
    assert many.problem == "are none of the study's categories"
    assert many.of_first == ""


@pytest.mark.parametrize(
    "column",
    [
        NumberColumn("x", 10, 20, None),
        NumberColumn("x", 10, 20, 12.0),
        NumberColumn("x", 0, 400, 5.0, dates=True),
        NumberColumn("x", 0, 400, 5.0, typical=(2, 40), log=True),
        NumberColumn("x", 0, 400, None, dates=True, typical=(20, 40)),
        CategoryColumn("x", ("a", "b"), missing=False),
        CategoryColumn("x", ("a", "b"), missing=True),
        CategoryColumn("x", ("a", "b"), missing=True, shares=(0.9, 0.1)),
    ],
)
def test_random_cells_are_ones_that_the_column_takes(column: Any) -> None:
    cells = column.random(200, np.random.default_rng(1))
    use = column.use(cells)
    assert (use.values, use.clipped, use.wrong) == (200, 0, 0)
    may_lack = column.missing is not None and column.missing is not False
    assert (use.missing > 0) == may_lack
    assert np.abs(column.encode(cells)).max() <= 1
