"""Cells that a study or a question can use, column by column, for the hospital alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from client_sdk.guard.exclusion import ExclusionList
from client_sdk.study.cell_counts import cells_of_question, cells_of_task, log_counts, without
from private_learning.records import DataError, Table, TableFormat
from private_learning.tasks import load
from study_protocol.cells.counting import CellCounts
from tests.factories.hospitals import plain_policy
from tests.factories.questions import question
from tests.factories.released import TABLE, TASKS

RECORDS = Table.of(
    {
        "age": ["40", "17", "", "x"],
        "chol": ["", "-1", "300", "500"],
        "thal": ["3", "9", "", "6"],
        "sick": ["0", "1", "0", "1"],
        "who": ["a", "b", "c", "d"],
    },
    patient_column="who",
    spelling=TableFormat(decimal="point").spelling,
)


def counted(counts: tuple[CellCounts, ...]) -> dict[str, tuple[int, int, int, int]]:
    return {one.column: (one.cells, one.missing, one.wrong, one.outside) for one in counts}


def test_every_input_of_a_task_is_counted() -> None:
    """Of age 17 is below 18, and x no number; of chol -1 and 500 lie outside; of thal 9 is no category."""
    assert counted(cells_of_task(load("logistic-regression", TABLE), RECORDS)) == {
        "age": (4, 1, 1, 1),
        "chol": (4, 1, 0, 2),
        "thal": (4, 1, 1, 0),
    }
    coded = TABLE | {"column.chol": "100..400; missing=240; missing-values=-1"}
    assert counted(cells_of_task(load("logistic-regression", coded), RECORDS))["chol"] == (4, 2, 0, 1)


def test_a_task_on_arrays_counts_no_column_and_a_lacking_one_is_named() -> None:
    assert cells_of_task(load("cnn", TASKS["cnn"]), RECORDS) == ()
    with pytest.raises(DataError, match="weight"):
        cells_of_task(load("logistic-regression", TABLE | {"column.weight": "30..200"}), RECORDS)


AGE_BINS = {"column": "age", "edges": [18, 90]}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"kind": "table", "variables": [AGE_BINS]}, {"age": (4, 1, 1, 1)}),
        (
            {"kind": "moments", "numbers": [{"column": "chol", "low": 100, "high": 400, "missing_values": ["-1"]}]},
            {"chol": (4, 2, 0, 1)},
        ),
        # Another value than the categories is outside and not wrong.
        (
            {"kind": "table", "variables": [{"column": "thal", "categories": ["3", "6"]}]},
            {"thal": (4, 1, 0, 1)},
        ),
        ({"kind": "table", "variables": [{"column": "thal", "presence": True}]}, {"thal": (4, 1, 0, 0)}),
        # What a condition leaves out is outside nothing.
        ({"kind": "count", "where": [{"column": "age", "low": 90}]}, {"age": (4, 1, 1, 0)}),
    ],
    ids=["bins", "number", "categories", "presence", "condition"],
)
def test_every_way_in_which_a_question_reads_a_column_is_counted(
    entries: dict[str, Any], expected: dict[str, tuple[int, int, int, int]]
) -> None:
    assert counted(cells_of_question(question(entries), RECORDS)) == expected


def test_a_column_that_is_read_twice_alike_is_counted_once() -> None:
    asked = question({"kind": "tables", "tables": [[AGE_BINS], [AGE_BINS, {"column": "thal", "presence": True}]]})
    assert [one.column for one in cells_of_question(asked, RECORDS)] == ["age", "thal"]


def test_rows_of_patients_who_objected_are_left_out() -> None:
    exclusions = plain_policy(excluded_patients=["B", "d"]).exclusions
    assert without(RECORDS, exclusions).patients == ("a", "c")
    assert without(RECORDS, ExclusionList(())) is RECORDS
    assert without(RECORDS, plain_policy(excluded_patients=["z"]).exclusions) is RECORDS


def test_the_log_names_columns_and_counts_and_never_a_cell(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_counts(cells_of_task(load("logistic-regression", TABLE), RECORDS), "study sepsis")
    assert "study sepsis: column age: 1 of 4 cells are neither a value nor a declared code" in caplog.text
    assert "every cell of" not in caplog.text
    caplog.clear()
    log_counts(
        cells_of_question(question({"kind": "table", "variables": [{"column": "sick", "edges": [1]}]}), RECORDS), "q"
    )
    assert caplog.messages == ["q: every cell of 1 columns is a value or a declared code"]
    caplog.clear()
    log_counts((), "q")
    assert caplog.messages == []
