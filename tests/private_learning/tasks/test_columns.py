"""Columns described by public numbers: what comes out for every form, and nothing is fitted to the records."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from private_learning.records import DataError, Table
from private_learning.tasks.columns import CategoryColumn, NumberColumn, encode_columns, read_columns
from private_learning.tasks.task import TaskError
from study_protocol.cells import Column, Spelling, column_of

FORMS = {
    "column.age": "18..90",
    "column.chol": " 100 .. 400 ; missing=240 ",
    "column.pain": "1|2.0|none",
    "column.thal": "3|6; missing",
    "column.weight": "30..200; missing-values = 0.0 | -1 |none; missing=70",
    "label": "not a column",
}
RANGES = {
    "0..400; typical=2..40; log": (2.0, True),
    "0.5..400; typical=2..40; log": (0.0, True),
    "-10..400; log; typical=-10..40": (10 + 5.0, True),
    "-10..400; log": (10 + 4.1, True),
    "-10..400; typical=5..40; log": (15 + 10, True),
    "18..90; log": (0.0, True),
    "0..400; typical=2..40": (2.0, False),
}
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_the_forms_in_the_order_of_their_names() -> None:
    assert read_columns(dict(reversed(FORMS.items()))) == (
        NumberColumn("age", 18.0, 90.0, None),
        NumberColumn("chol", 100.0, 400.0, 240.0),
        CategoryColumn("pain", ("1", "2", "none"), missing=False),
        CategoryColumn("thal", ("3", "6"), missing=True),
        NumberColumn("weight", 30.0, 200.0, 70.0, ("0", "-1", "none")),
    )


def test_the_widths_are_those_of_what_is_encoded() -> None:
    columns = read_columns(FORMS)
    data = {
        "age": np.array([54.0, 90.0]),
        "chol": np.array([np.nan, 400.0]),
        "pain": np.array(["1", "none"], dtype=object),
        "thal": np.array([6.0, np.nan]),
        "weight": np.array(["none", "200"], dtype=object),
    }
    found = encode_columns(columns, data)
    assert found.shape == (2, sum(column.width for column in columns))
    np.testing.assert_allclose(found[0], [0, -1 / 15, 1, 1, 0, 0, 0, 1, 0, -9 / 17, 1], atol=1e-12)
    np.testing.assert_allclose(found[1], [1, 1, 0, 0, 0, 1, 0, 0, 1, 1, 0], atol=1e-12)
    with pytest.raises(DataError, match="lacks 3 of the study's columns: 'pain', 'thal', 'weight'"):
        encode_columns(columns, {name: data[name] for name in ("age", "chol")})


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("2024-01-31", "a date: declare the column as dates"),
        ("31.01.24 10:00", "a date"),
        ("1,234", "a number whose comma or point may mean thousands"),
        ("70 kg", "a sign or a unit"),
        ("<5", "a sign or a unit"),
        ("high", "is text: if it stands for a missing value, missing-values"),
    ],
)
def test_the_kind_of_a_cell_that_is_no_number_is_said_and_not_the_cell(cell: str, kind: str) -> None:
    table = Table.of({"x": [1, cell, 3, cell]}, lines=[2, 3, 5, 6])
    with pytest.raises(
        DataError, match=f"column x: 2 of 4 values are no numbers, the first in line 3, .*{kind}"
    ) as refused:
        encode_columns(read_columns({"column.x": "0..9"}), table.columns, table.first)
    assert cell not in str(refused.value)


@pytest.mark.parametrize(
    ("declared", "column", "cell", "kind"),
    [
        ("point", "0..9", "2,5", "a number with a comma, and the data set is declared with a decimal point"),
        (
            "comma",
            "0..9",
            "1.234",
            "whose point may mean thousands, and the data set is declared with a decimal comma",
        ),
        ("point", "0..9", "1.234,5", "a number with marks or spaces between thousands"),
        ("comma", "0..9", "2.5", "a number with a point, and the data set is declared with a decimal comma"),
        ("point", "0..9", "1,234.5", "a number with marks or spaces between thousands"),
        ("comma", "0..9", "1 234,5", "a number with marks or spaces between thousands"),
        (None, "0..9", "2,5", "declare the decimal mark of the data set"),
        ("point", "2020-01-01..2020-12-31", "2.5", "a number and no date"),
        ("comma", "2020-01-01..2020-12-31", "2,5", "a number and no date"),
        ("point", "2020-01-01..2020-12-31", "25", "a number and no date"),
    ],
    ids=map(str, count()),
)
def test_the_kind_of_a_number_is_said_beside_the_declared_mark(
    declared: Any, column: str, cell: str, kind: str
) -> None:
    cells = Column.of_texts([cell], Spelling(declared), "x")
    with pytest.raises(DataError, match=f"1 of 1 values are no (numbers|dates), .*{kind}") as refused:
        encode_columns(read_columns({"column.x": column}), {"x": cells}, lambda _: "line 2")
    assert cell not in str(refused.value)


def test_all_faults_of_a_table_are_named_at_once_and_columns_with_what_may_be_meant() -> None:
    columns = read_columns({"column.Age": "0..9", "column.sex": "f|m", "column.x": "0..9"})
    table = Table.of({"Age": [1, None], "sex": ["f", "d"], "x": [1, 2]})
    with pytest.raises(DataError, match=r"Age: 1 of 2 values are missing, .* row 2; column sex: 1 of 2 .* row 2$"):
        encode_columns(columns, table.columns, table.first)
    with pytest.raises(DataError, match=r"lacks 2 .*'Age' .did you mean 'age '\?., 'sex'$"):
        encode_columns(columns, {"age ": table.columns["Age"], "x": table.columns["x"]})


def test_a_column_of_dates_is_no_column_of_nanoseconds() -> None:
    frame = pd.DataFrame({"seen": pd.to_datetime(["2024-01-31", None]), "x": pd.array([1, None], dtype="Int64")})
    table = Table.of(frame)
    np.testing.assert_array_equal(table.columns["x"], [1, np.nan])
    assert table.columns["seen"][1] is None
    with pytest.raises(DataError, match="which is a date"):
        encode_columns(read_columns({"column.seen": "0..1; missing=0"}), table.columns, table.first)


@pytest.mark.parametrize("code", ["01.01.1900", "31.12.1899", "12/31/1899"])
def test_a_date_that_means_missing_begins_with_its_year(code: str) -> None:
    dates = "2020-01-01..2020-12-31; missing=2020-05-01; missing-values="
    with pytest.raises(TaskError, match="begins with its year"):
        read_columns({"column.x": f"{dates}{code}"})
    (column,) = read_columns({"column.x": f"{dates}1900-01-01|00.00.0000|unknown"})
    assert isinstance(column, NumberColumn)
    stored = column.read(np.array(["1900-01-01", "2020-02-01"], "datetime64[D]"))
    assert stored.missing.tolist() == [True, False]
    written = column.read(column_of(["1.1.1900", "00.00.0000", "1.2.2020"], spelling=Spelling(dates="dmy")))
    assert written.missing.tolist() == [True, True, False]


def test_of_many_columns_that_lack_the_first_are_named() -> None:
    columns = read_columns({f"column.gene{place:04}": "0..1" for place in range(5000)})
    with pytest.raises(DataError, match=r"lacks 5000 of .*'gene0009' .*, and 4990 more$") as refused:
        encode_columns(columns, {f"Gene-{place:04}": np.zeros(1) for place in range(5000)})
    assert "gene0010'" not in str(refused.value)


@pytest.mark.parametrize(("text", "offset", "is_log"), [(text, *found) for text, found in RANGES.items()])
def test_the_ends_of_a_typical_range_become_minus_one_and_one(text: str, offset: float, is_log: bool) -> None:
    (column,) = read_columns({"column.x": f"{text}; missing=20; missing-values=999"})
    assert isinstance(column, NumberColumn)
    first, last = column.typical or (column.low, column.high)
    cells = np.array([first, last, 20.0, np.nan, 999.0, column.low - 5, column.low, 1e6, column.high])
    found = column.encode(cells)

    def mapped(value: float) -> float:
        return math.log(value + offset) if is_log else value

    def expected(value: float) -> float:
        return 2 * (mapped(value) - mapped(first)) / (mapped(last) - mapped(first)) - 1

    of_20, lowest, highest = expected(20.0), expected(column.low), expected(column.high)
    assert found[:, 0] == pytest.approx([-1, 1, of_20, of_20, of_20, lowest, lowest, highest, highest])
    assert found[:, 1].tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0]


def test_dates_have_a_typical_range_too() -> None:
    (column,) = read_columns({"column.seen": "2015-01-01..2030-12-31; typical=2020-01-01..2020-01-11"})
    assert column.encode(np.array(["2020-01-01", "2020-01-06", "2020-01-16"], "datetime64[D]")).tolist() == [
        *([-1.0], [0.0], [2.0]),
    ]


@pytest.mark.parametrize("frequencies", ["75|20|5", "15 | 4 |1", "0.75|0.2|0.05", "1.5e308|4e307|1e307"])
def test_frequencies_are_subtracted_where_the_category_is_known(frequencies: str) -> None:
    (column,) = read_columns({"column.x": f"a=1|b|3; frequencies={frequencies}; missing"})
    found = column.encode(np.array(["a=1", "3.0", None], dtype=object))
    np.testing.assert_allclose(found, [[0.25, -0.2, -0.05, 0], [-0.75, -0.2, 0.95, 0], [0, 0, 0, 1]], atol=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (f"0..9; typical={wrong}", "typical=low..high is a part of the range")
            for wrong in ("3..2", "3..3", "3", "")
        ),
        *((f"1..9; typical={wrong}", "typical=low..high is a part of the range") for wrong in ("0..3", "3..10")),
        *((f"0..9; typical={wrong}", "finite") for wrong in ("nan..3", "3..inf")),
        *((f"0..9; typical={wrong}", "typical=.* is not a number") for wrong in ("a..b", "..", "1..2..3")),
        ("0..9; typical=2020-01-01..2020-02-01", "is not a number"),
        ("2020-01-01..2021-01-01; typical=3..4", "no date of the form"),
        (
            "0..9; typical=2..3; typical=2..4",
            "once each: missing, missing-values, site-may-lack, unmapped-is-missing, ",
        ),
        ("0..9; log; log", "once each"),
        ("0..9; log=2", "log stands alone"),
        ("2020-01-01..2021-01-01; log", "log stands alone, without a value, behind a range of numbers"),
        ("0..9; frequencies=1|2", "frequencies are for categories"),
        ("0..1e9; typical=1..2", "narrower than a thousandth of the range.* or add '; log'"),
        ("0..1e300; typical=0..5e-324; log", "narrower than a thousandth"),
        ("a|b; typical=a", "typical and log are for a range.*frequencies=50|50"),
        ("a|b; log", "typical and log are for a range"),
        *((f"a|b; frequencies={wrong}", "2 numbers of at least 0") for wrong in ("1", "1|2|3", "-1|2", "0|0")),
        *((f"a|b; frequencies={wrong}", "frequencies: .* is not a number") for wrong in ("a|b", "", "90 %|10 %")),
        ("a|b; frequencies=nan|1", "finite"),
        ("0..5e-324", "the range is too narrow"),
        ("-1e308..1e308; log", "too wide for its numbers to be told apart"),
    ],
    ids=map(str, count()),
)
def test_a_wrong_typical_range_logarithm_or_frequency_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(TaskError, match=f"^column.x: .*{words}") as refused:
        read_columns({"column.x": text})
    assert "\n" not in str(refused.value)
