"""Hints about encodings: which kinds of columns get one, what it says, and that no hint shows in a repr."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from client_sdk.study.encoding_hints import EncodingHint, hints_of
from private_learning.records import Table
from private_learning.tasks import load
from private_learning.tasks.columns import read_columns
from tests.factories.released import TASKS

COUNT = 400
DRAW = np.random.default_rng(3)
NORMAL, UNIFORM = DRAW.normal(size=COUNT), DRAW.uniform(size=COUNT)
SKEWED = np.round(np.clip(np.exp(2 + 0.9 * NORMAL), 0.5, 350), 1)
BMI = np.round(27 + 4 * NORMAL, 1)
RARE = UNIFORM < 0.07


def hints(described: str, values: Any) -> list[EncodingHint]:
    task = load("logistic-regression", {"label": "y", "column.x": described})
    return list(hints_of(task, Table.of({"x": values, "y": np.arange(len(values)) % 2})))


def with_code(values: np.ndarray, code: float, share: float = 0.05) -> np.ndarray:
    return np.where(share > UNIFORM, code, values)


def dates(first: str, days: np.ndarray) -> np.ndarray:
    return np.datetime64(first, "D") + np.clip(days, 0, None).astype(np.int64)


DAYS = dates("2020-01-01", 700 * UNIFORM)
FITTING: list[tuple[str, Any]] = [
    # Most of the range is used, as it is or after the declared logarithm.
    ("0..1", UNIFORM),
    ("15..45", BMI),
    ("0.5..400; log", SKEWED),
    ("0..400; typical=2..40; log", SKEWED),
    ("10..60; typical=20..35", BMI),
    ("2020-01-01..2021-12-31", DAYS),
    # Constant, of two numbers, a score, and few values.
    ("0..400", np.full(COUNT, 5.0)),
    ("0..1", UNIFORM < 0.4),
    ("1..4", np.array([4, 4, 4, 1, 3, 2, 4, 4] * 50)),
    ("0..400", SKEWED[:10]),
    # A declared code is no value, and a code beside none is not far.
    ("15..45; missing=27; missing-values=0", with_code(BMI, 0.0)),
    # Counts and sums of which most are 0: no other number stands at the middle of them, and 0 is no code.
    ("0..5", np.floor(np.exp(1.2 * NORMAL - 1.0))),
    ("0..3000", np.where(UNIFORM < 0.8, 0, 100 * SKEWED)),
    # Categories without a dominant one, or with fitting frequencies.
    ("a|b|c", np.array(["a", "a", "b", "c"] * 100, dtype=object)),
    ("no|yes; frequencies=90|10", np.where(RARE, "yes", "no")),
    ("no|yes", np.full(5, "no")),
]


@pytest.mark.parametrize(("described", "values"), FITTING, ids=[text for text, _ in FITTING])
def test_columns_that_fit_get_no_hint(described: str, values: Any) -> None:
    assert hints(described, values) == []


YES_NO = np.where(RARE, "yes", "no")
ODD: list[tuple[str, Any, str, str]] = [
    (
        "0..400",
        SKEWED,
        "90 % of your values lie in 8 % of the range. A typical range and a logarithm",
        "; typical=1..35; log",
    ),
    ("0..400; missing=10", SKEWED, "a logarithm", "; log"),
    # The few far ones do not hide where the others lie, whether inside the range or clipped.
    ("0..4000", np.where(UNIFORM < 0.01, 3000 + 100 * NORMAL, SKEWED), "lie in 1 % of the range", "; log"),
    ("15..400", np.where(UNIFORM < 0.02, 1e6 * NORMAL**2, BMI), "A typical range would help", "typical=20..3"),
    ("0..300", BMI, "lie in 5 % of the range. A typical range would help", "0..300; typical=20..34"),
    ("0..400; typical=100..200", SKEWED, "most of your values lie outside the typical range. Another", "; log"),
    ("0..400; typical=100..200", 150 + NORMAL, "lie in 3 % of the typical range. Another", "typical=14"),
    ("0..400; typical=26..27", BMI, "spread over much more than the typical range. Another", "typical=20..34"),
    ("1950-01-01..2030-12-31", dates("2019-01-01", 900 * UNIFORM), "3 % of the range", "typical=2019-02-01..2021-0"),
    ("0..1", RARE, "91 % of your values are one number. Categories with frequencies", "0|1; frequencies=90|10"),
    ("no|yes", YES_NO, "91 % of your values are one category. Frequ", "no|yes; frequencies=90|10"),
    ("no|yes; frequencies=5|95", YES_NO, "differ much from the declared", "no|yes; frequencies=90|10"),
]


@pytest.mark.parametrize(("described", "values", "words", "line"), ODD, ids=map(str, range(len(ODD))))
def test_columns_that_fit_badly_get_one_hint_with_a_line_that_a_study_takes(
    described: str, values: Any, words: str, line: str
) -> None:
    (hint,) = hints(described, values)
    assert words in hint.words
    assert line in hint.line
    (column,) = read_columns({"column.x": hint.line})
    # Nothing remains to be said.
    assert hints(hint.line, values) == []
    assert column.name == hint.column
    assert hint.words not in repr(hint)
    assert hint.line not in repr(hint)


@pytest.mark.parametrize(
    ("described", "values", "code"),
    [
        ("15..60", with_code(BMI, 0.0), "0"),
        ("15..60; missing=30; missing-values=0", with_code(BMI, -1.0), "0|-1"),
        ("15..999", with_code(BMI, 999.0), "999"),
        ("1..3", with_code(np.round(2 + NORMAL.clip(-1, 1)), 9.0), "9"),
        (
            "2020-01-01..2021-12-31",
            np.where(UNIFORM < 0.05, np.datetime64("1900-01-01"), dates("2020-01-01", 700 * UNIFORM)),
            "1900-01-01",
        ),
    ],
    ids=["zero", "second code", "inside the range", "score", "date"],
)
def test_a_number_far_from_all_others_may_mean_missing(described: str, values: Any, code: str) -> None:
    hint = hints(described, values)[0]
    assert hint.words.endswith(f"one number far from all others. If it means missing, missing-values={code}")
    assert hint.line == ""


def test_what_a_code_hides_is_seen_beside_it() -> None:
    assert [bool(hint.line) for hint in hints("0..999", with_code(BMI, 999.0))] == [False, True]


def test_only_the_first_rows_are_read_however_many_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("client_sdk.study.encoding_hints._MAX_ROWS", 100)
    values = np.concatenate([np.full(60, np.nan), np.full(40, 5.0) + 0.1 * NORMAL[:40], 90 * UNIFORM])
    assert [hint.line for hint in hints("0..100; missing=5", values)] == ["0..100; missing=5; typical=4.75..5.2"]


def test_other_tasks_get_no_hints() -> None:
    assert hints_of(load("cnn", TASKS["cnn"]), Table.of({"x": [1]})) == ()
