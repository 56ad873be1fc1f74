"""Tables of an answer, and which of their rows are suppressed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from study_protocol.queries.answer import Answer, AnswerTable, NoisedSum, Plot, rows_of, value
from tests.factories.questions import (
    AGE,
    AGES,
    FEMALE,
    SEX,
    answer_without_noise,
    column,
    patients,
    question,
)


def test_small_counts_and_what_rests_on_them_are_suppressed() -> None:
    asked = question({"kind": "table", "variables": [SEX, AGES]})
    answer = answer_without_noise(asked, patients(300)).suppressed(10)
    assert 0 < len(answer.tables[0].rows) < asked.cells
    assert column(answer, "table").min() >= 10
    assert len(answer.tables[1].rows) == len(answer.tables[0].rows)
    few = answer_without_noise(question({"kind": "moments", "numbers": [AGE, FEMALE]}), patients(8)).suppressed(10)
    assert all(table.rows == () for table in few.tables)


def test_a_number_that_is_not_finite_is_no_value_and_zero_has_no_sign() -> None:
    assert [value(math.nan), value(-math.inf), value(2.5)] == [None, None, 2.5]
    assert math.copysign(1, value(-0.0) or 0.0) == 1
    assert rows_of([("a",), ("b",)], [1.0, math.inf], [0.5, 2.0]) == (("a", 1, 0.5), ("b", None, 2))


def test_a_table_has_one_value_for_each_column_and_draws_only_its_own() -> None:
    row = {"name": "n", "title": "t", "columns": ("x", "estimate"), "rows": (("a", 1.0),)}
    AnswerTable.model_validate(row | {"counts": "estimate", "plot": Plot(kind="bars", x="x", y="estimate")})
    with pytest.raises(ValidationError, match="every row has one value for each column"):
        AnswerTable.model_validate(row | {"rows": (("a",),)})
    for entries in ({"counts": "patients"}, {"plot": Plot(kind="bars", x="x", y="estimate", low="low")}):
        with pytest.raises(ValidationError, match="is one of its columns"):
            AnswerTable.model_validate(row | entries)


def test_a_note_says_how_many_rows_are_not_shown() -> None:
    counted = AnswerTable(
        name="n", title="t", columns=("x", "m"), rows=(("a", 9.0), ("b", 10.0), ("c", None)), counts="m"
    )
    plain = AnswerTable(name="p", title="t", columns=("x",), rows=((1.0,),))
    shown = Answer(tables=(counted, plain), notes=("first",)).suppressed(10)
    assert shown.tables[0].rows == (("b", 10),)
    assert shown.tables[1] == plain
    assert shown.notes[0] == "first"
    assert shown.notes[1].startswith("2 rows are not shown: each counts fewer than 10 patients")
    one = Answer(tables=(counted.model_copy(update={"rows": (("a", 9.0),)}),))
    assert one.suppressed(10).notes[0].startswith("1 row is not shown")
    assert one.suppressed(0) == one
    assert one.suppressed(9).notes == ()


def test_equal_seeds_draw_the_same_simulations() -> None:
    draws = [NoisedSum(np.zeros(1), 1.0, seed).generator().normal() for seed in (5, 5, 6)]
    assert draws[0] == draws[1] != draws[2]
