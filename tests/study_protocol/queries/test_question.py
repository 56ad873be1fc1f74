"""Questions as strangers write them, and as people read them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.queries.question import MAX_CELLS
from tests.factories.questions import (
    AGE,
    AGES,
    DOCUMENTS,
    PRESSURE,
    SEX,
    answer_without_noise,
    patients,
    question,
)

EDGES = [float(edge) for edge in range(1000)]
WIDE = [{"column": name, "edges": EDGES} for name in ("a", "b")]
HOSTILE: list[tuple[str, str, dict[str, Any]]] = [
    ("count", "finite number", {"noise_multiplier": math.nan}),
    ("count", "finite number", {"noise_multiplier": math.inf}),
    ("count", "greater than or equal to", {"noise_multiplier": 1e-12}),
    ("count", "less than or equal to", {"noise_multiplier": 1e9}),
    ("count", "valid number", {"noise_multiplier": "4"}),
    ("count", "valid number", {"noise_multiplier": True}),
    ("count", "control character", {"title": "a\x1b[2J"}),
    ("count", "not permitted", {"secret": 1}),
    ("count", "negative zero", {"where": [{"column": "age", "low": -0.0}]}),
    ("count", "low is below high", {"where": [{"column": "age", "low": 5, "high": 5}]}),
    ("count", "has categories, or low", {"where": [{"column": "age"}]}),
    ("count", "control character", {"where": [{"column": "a\u202eb", "low": 1}]}),
    ("count", "half a character", {"where": [{"column": "a\ud800", "low": 1}]}),
    ("count", "at least 1 item", {"where": [{"column": "", "low": 1}]}),
    ("table", "finite number", {"variables": [{"column": "age", "edges": [1, math.nan]}]}),
    ("table", "finite number", {"variables": [{"column": "age", "edges": [1, math.inf]}]}),
    ("table", "negative zero", {"variables": [{"column": "age", "edges": [-0.0, 1]}]}),
    ("table", "edges rise", {"variables": [{"column": "age", "edges": [1, 1]}]}),
    ("table", "one of the three", {"variables": [{"column": "age"}]}),
    ("table", "one of the three", {"variables": [SEX | {"presence": True}]}),
    ("table", "stands twice", {"variables": [{"column": "stage", "categories": ["3", "3.0"]}]}),
    ("table", "at least one letter", {"variables": [{"column": "stage", "categories": [" "]}]}),
    ("table", "both a category and", {"variables": [SEX | {"missing_values": ["m"]}]}),
    ("table", "category is called", {"variables": [{"column": "sex", "categories": ["f", "other"]}]}),
    ("table", "sex: stands twice", {"variables": [SEX, SEX]}),
    ("table", f"1004004 cells, and at most {MAX_CELLS}", {"variables": WIDE}),
    ("tables", "sex: stands twice", {"tables": [[SEX, SEX]]}),
    ("tables", "one stands twice", {"tables": [[SEX], [SEX]]}),
    ("tables", "1004008 cells", {"tables": [WIDE, [SEX]]}),
    ("moments", "low is below high", {"numbers": [AGE | {"low": 100}]}),
    ("moments", "within ±1e\\+100", {"numbers": [AGE | {"high": 1e308}]}),
    ("moments", "at least 1e-100 wide", {"numbers": [{"column": "x", "low": 0, "high": 5e-324}]}),
    ("moments", "age: stands twice", {"numbers": [AGE, AGE]}),
    ("covariance", "age: stands twice", {"numbers": [AGE, PRESSURE, AGE | {"low": 5}]}),
    ("covariance", "at least 2 items", {"numbers": [AGE]}),
    ("covariance", "at most 64 items", {"numbers": [AGE | {"column": f"x{i}"} for i in range(65)]}),
    ("linear-regression", "pressure: stands twice", {"predictors": [AGE, PRESSURE]}),
    ("quantiles", "low is below high", {"number": AGE | {"low": 100}}),
    ("quantiles", "less than or equal to 4096", {"leaves": 5000}),
    ("quantiles", "greater than or equal to 2", {"leaves": 1}),
    ("quantiles", "valid integer", {"leaves": 40.5}),
    ("quantiles", "they rise", {"quantiles": [0.5, 0.25]}),
    ("quantiles", "they rise", {"quantiles": [0.5, 0.5]}),
    ("quantiles", "less than 1", {"quantiles": [1.0]}),
    ("quantiles", "greater than 0", {"quantiles": [0.0]}),
    ("quantiles", "finite number", {"quantiles": [math.nan]}),
    ("quantiles", "too narrow for 40 leaves", {"number": {"column": "x", "low": 1e15, "high": 1e15 + 1}}),
    ("quantiles", "sex: stands twice", {"number": AGE | {"column": "sex"}}),
    ("quantiles", "cells, and at most", {"leaves": 4096, "by": {"column": "age", "edges": EDGES}}),
    ("quantiles", "at most 256 groups", {"leaves": 2, "by": {"column": "age", "edges": list(range(255))}}),
    ("survival", "at least two edges", {"time": SEX | {"column": "x"}}),
    ("survival", "at least two edges", {"time": {"column": "age", "edges": [1]}}),
    ("survival", "age: stands twice", {"by": AGES}),
    ("survival", "sex: stands twice", {"time": {"column": "sex", "edges": [1, 2]}}),
    ("survival", "each is one of the edges", {"times": [41]}),
    ("survival", "times rise", {"times": [60, 40]}),
    ("survival", "finite number", {"times": [math.inf]}),
    ("survival", "at most 64 groups", {"by": {"column": "pressure", "edges": EDGES}}),
]


@pytest.mark.parametrize(
    ("kind", "words", "entries"), HOSTILE, ids=[f"{kind} {place}" for place, (kind, _, _) in enumerate(HOSTILE)]
)
def test_what_is_no_sound_question_is_refused_in_words(kind: str, words: str, entries: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=words):
        question(DOCUMENTS[kind], **entries)


def test_columns_may_have_the_names_of_any_language() -> None:
    asked = question({"kind": "count", "where": [{"column": "größe in cm, 身長", "low": 150}]})
    assert asked.columns == ("größe in cm, 身長",)
    assert len(asked.digest()) == 64


def test_a_column_called_as_one_of_an_answers_is_told_apart() -> None:
    asked = question({"kind": "table", "variables": [{"column": "estimate", "edges": [50]}]})
    columns = answer_without_noise(asked, {"estimate": patients(9)["age"]}).tables[0].columns
    assert len(set(columns)) == len(columns)
