"""Guessed columns: types, rounded numbers, no rare word, and a reason for each column that is left out."""

from __future__ import annotations

import datetime
import re
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk.study.guessed_columns import guess_columns, patient_column, rounded_range
from private_learning.records import Table
from private_learning.tasks.columns import PREFIX, encode_columns, read_columns

N = 400
DRAW, OTHER_DRAW = np.random.default_rng(5), np.random.default_rng(6)


def guessed(cells: Any, name: str = "x") -> tuple[str | None, str | None]:
    found = guess_columns(Table.of({name: cells, "ill": [0, 1] * (N // 2)}), ["ill"])
    return found.lines.get(name), found.left_out.get(name)


def test_numbers_get_a_rounded_range_and_skewed_ones_a_logarithm() -> None:
    values = DRAW.lognormal(2, 1, N)
    line, _ = guessed(values)
    assert line is not None
    assert line.endswith("; log")
    written = [float(end) for end in line.split(";")[0].split("..")]
    assert not set(written) & set(values.tolist())
    assert written[0] <= np.quantile(values, 0.01)
    assert written[1] >= np.quantile(values, 0.99)
    # One outlier among 400 does not show.
    outlier, _ = guessed([*values[:-1], 123456.0])
    assert "123" not in str(outlier)


def test_missing_cells_and_codes_get_their_places() -> None:
    values = DRAW.normal(100, 10, N).round(1)
    values[:20], values[20:40] = np.nan, -1
    line, _ = guessed(values)
    assert line is not None
    assert "missing=100" in line
    assert line.endswith("missing-values=-1")


@pytest.mark.parametrize("code", [999.0, float(np.finfo(np.float32).max), sys.float_info.max, -sys.float_info.max])
def test_a_code_is_written_as_it_is_stored(code: float) -> None:
    values = OTHER_DRAW.normal(100, 10, N).round(1)
    values[:20] = code
    line, _ = guessed(values)
    assert line is not None
    (column,) = read_columns({PREFIX + "x": line})
    assert column.read(values).missing.sum() == 20
    assert "nan" not in line
    assert "inf" not in line


def test_a_code_of_few_patients_is_no_end_of_the_range_and_is_not_written() -> None:
    values = OTHER_DRAW.normal(75, 10, N).round()
    values[:8] = 0
    found = guess_columns(Table.of({"x": values}), [])
    assert known_ends(found.lines["x"])[0] > 30
    assert "missing" not in found.lines["x"]
    (remark,) = found.remarks
    assert "8 cells are one number far from all others" in remark
    # The rows of one patient are one.
    people = [f"p{max(row, 20)}" for row in range(N)]
    values[8:20] = 0
    found = guess_columns(Table.of({"x": values, "who": people}, patient_column="who"), [])
    assert "missing" not in found.lines["x"]


def test_numbers_at_the_limit_of_floats_are_left_out_with_their_reason() -> None:
    reason = "one value but for few patients, or numbers beyond 1e300"
    assert guessed(OTHER_DRAW.uniform(-1, 1, N) * sys.float_info.max) == (None, "an identifier")
    few = OTHER_DRAW.integers(-9, 10, N) / 10
    assert guessed(few * sys.float_info.max) == (None, reason)
    assert guessed(OTHER_DRAW.uniform(size=N) * 1e-305) == (None, reason)


def test_many_numbered_categories_are_written() -> None:
    line, reason = guessed([row * row % 29 + 1 for row in range(N)], "ward_code")
    assert (line is None, reason) == (False, None)
    line, _ = guessed([row % 30 + 1 for row in range(N)], "ward_code")
    assert str(line).startswith("|".join(map(str, range(1, 31))))


@pytest.mark.parametrize("share", [0.05, 0.0999, 0.1, 0.1001, 0.4, 0.9])
def test_a_word_for_a_missing_number_may_stand_in_any_share_of_the_cells(share: float) -> None:
    words = ["unk"] * round(share * N)
    texts = [*words, *(f"{value:.0f}" for value in DRAW.lognormal(4.7, 0.8, N - len(words)))]
    line, reason = guessed(texts, "door_minutes")
    assert reason is None
    assert str(line).endswith("missing-values=unk")
    # Among few numbers it is a category of a list.
    few, _ = guessed(["1", "2"] * (N // 2 - len(words) // 2) + ["unk"] * (len(words) // 2 * 2), "grade")
    assert str(few).startswith("1|2")


def test_frequent_words_are_categories_and_rare_ones_are_not_written() -> None:
    words = ["medical"] * 200 + ["surgical"] * 195 + ["rarissima"] * 5
    found = guess_columns(Table.of({"ward": words, "ill": [0, 1] * 200}), ["ill"])
    assert found.lines["ward"] == "medical|surgical; missing; frequencies=50|50"
    assert found.remarks == (
        "column ward: 5 of 400 cells are rare categories and count as missing here. "
        "A study refuses them: leave them empty",
    )
    columns = read_columns({PREFIX + "ward": found.lines["ward"]})
    assert encode_columns(columns, found.table.columns)[:, -1].sum() == 5


def test_rare_categories_count_patients_and_not_rows() -> None:
    table = Table.of(
        {"p": [f"p{row // 4}" for row in range(N)], "ward": ["a"] * 200 + ["b"] * 172 + ["c"] * 28}, patient_column="p"
    )
    assert "c" not in guess_columns(table, []).lines["ward"].split(";")[0].split("|")


def test_few_whole_numbers_are_categories_with_frequencies() -> None:
    assert guessed([0] * 360 + [1] * 40)[0] == "0|1; frequencies=90|10"
    assert guessed([True] * 100 + [False] * 300)[0] == "0|1; frequencies=75|25"


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("x", [None] * N, "no values"),
        ("x", ["?"] * N, "no values"),
        ("x", [1.0] * 5 + [None] * (N - 5), "more than 95% are missing"),
        ("x", ["same"] * N, "one value throughout"),
        ("x", [0] * (N - 3) + [1, 2, 3], "one value but for few patients, or numbers beyond 1e300"),
        ("x", [f"note on patient {row}" for row in range(N)], "free text or identifiers"),
        ("x", ["a long text " * 5, "another long text " * 5] * (N // 2), "free text"),
        ("x", [datetime.date(2020, 1, 1) + datetime.timedelta(days=row) for row in range(N)], "dates"),
        ("x", [f"2020-01-{row % 28 + 1:02}" for row in range(N)], "dates"),
        ("record_id", list(DRAW.permutation(N) + 100), "an identifier"),
        ("x", list(range(1000, 1000 + N)), "an identifier"),
        (
            "x",
            ["a|b", "c|d"] * (N // 2),
            "its words cannot be written between bars, or are numbers with a separator of thousands",
        ),
        (
            "x",
            ["1,000", "900"] * (N // 2),
            "its words cannot be written between bars, or are numbers with a separator of thousands",
        ),
        ("x", [f"w{row % 80}" for row in range(N)], "fewer than two categories have 10 patients"),
    ],
)
def test_what_is_no_input_is_named_with_its_reason(name: str, cells: Any, reason: str) -> None:
    assert guessed(cells, name) == (None, reason)


def test_a_whole_number_that_nearly_all_patients_have_otherwise_may_be_a_measurement() -> None:
    weights = DRAW.choice(np.arange(2000, 4500), N, replace=False)
    assert guessed(weights, "birth_weight")[0] is not None


def test_no_written_number_moves_with_one_patient_by_more_than_its_rounding() -> None:
    values = DRAW.normal(50, 10, N)
    assert guessed(values)[0] == guessed([*values[:-1], 1e9])[0] == guessed([*values[:-1], -1e9])[0]


def test_columns_that_a_person_leaves_out() -> None:
    found = guess_columns(Table.of({"a": list(DRAW.normal(size=N)), "b": list(DRAW.normal(size=N))}), [], ["b"])
    assert list(found.lines) == ["a"]
    assert found.left_out == {"b": "as you said"}


@pytest.mark.parametrize(
    ("name", "values", "named"),
    [
        ("patient_nbr", [row // 2 for row in range(N)], True),
        ("patient_nbr", list(range(N)), False),
        ("patient_age", [row // 2 for row in range(N)], False),
        ("visits", [row // 2 for row in range(N)], False),
        ("Fall_ID", [row // 2 for row in range(N)], True),
        ("Pseudonym", [f"PS{row // 2}" for row in range(N)], True),
        ("key", [f"CH-{row // 2:06}" for row in range(N)], True),
        ("key", [f"CH-{row:06}" for row in range(N)], False),
        ("diagnosis", [f"F{row // 2 % 90}.{row % 3}" for row in range(N)], False),
        ("time", [f"2024-05-01T{row // 2 % 24:02}:{row % 60:02}:00" for row in range(N)], False),
        ("inr", [f"{row // 2 / 100}" for row in range(N)], False),
    ],
)
def test_a_column_of_patients_with_several_rows(name: str, values: list[Any], named: bool) -> None:
    assert patient_column(Table.of({name: values})) == (name if named else None)


def test_a_range_of_one_number_is_none() -> None:
    assert rounded_range(np.array([0.0] * 199 + [5.0])) is None
    assert rounded_range(np.linspace(3, 97, 300)) == (0.0, 100.0)


def test_a_column_that_a_person_keeps_is_no_identifier() -> None:
    table = Table.of({"visit_nr": list(range(1000, 1400)), "ill": [0, 1] * 200})
    assert guess_columns(table, ["ill"]).left_out["visit_nr"] == "an identifier"
    assert "visit_nr" in guess_columns(table, ["ill"], kept=["visit_nr"]).lines


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.floats(-1e5, 1e5).map(lambda x: round(x, 4)), min_size=120, max_size=120),
    low=st.floats(-9e8, -4e5),
    high=st.floats(4e5, 9e8),
    rare=st.text(st.characters(categories=["Lu"]), min_size=8, max_size=12),
)
def test_no_extreme_value_and_no_rare_word_is_described(
    numbers: list[float], low: float, high: float, rare: str
) -> None:
    words = ["common"] * 60 + ["usual"] * 53 + [rare] * 9
    table = Table.of({"crp": [low, *numbers, high], "ward": words, "ill": [0, 1] * 61})
    lines = guess_columns(table, ["ill"]).lines
    assert not any(rare in text for text in lines.values())
    ends = known_ends(lines["crp"]) if "crp" in lines else ()
    assert all(-4e5 < end < 4e5 for end in ends)


def known_ends(text: str) -> tuple[float, ...]:
    """Return every number of a description of a number column."""
    return tuple(map(float, re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)))
