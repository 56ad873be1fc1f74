"""Every kind without noise finds what the usual libraries find on the pooled patients; its sensitivity."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from private_learning.records import Table
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.rows import one_row_each
from study_protocol.queries.variables import UnreadableColumn
from tests.factories.questions import DOCUMENTS, answer_without_noise, column, exact, patients, question

QUESTIONS = DOCUMENTS | {
    "centred-moments": DOCUMENTS["moments"] | {"centred": True},
    # One hospital's block of it.
    "by-hospital": DOCUMENTS["table"] | {"by": "hospital"},
}
KINDS = pytest.mark.parametrize("kind", QUESTIONS)


def rounded(asked: Any, columns: dict[str, NDArray[Any]], row: int) -> list[int]:
    one = {name: values[row : row + 1] for name, values in columns.items()}
    return [int(step) for step in asked.total(one, asked.grid().spacing)]


@KINDS
def test_sums_of_hospitals_add_up_to_the_sum_over_all_patients(kind: str) -> None:
    asked, columns = question(QUESTIONS[kind]), patients(10_000)
    parts = [{name: values[i::3] for name, values in columns.items()} for i in range(3)]
    spacing = asked.grid().spacing
    total = sum(asked.total(part, spacing) for part in parts)
    assert np.array_equal(total, asked.total(columns, spacing))


@KINDS
def test_a_hospital_without_a_patient_adds_zero(kind: str) -> None:
    asked = question(QUESTIONS[kind])
    assert asked.total(patients(0), asked.grid().spacing).tolist() == [0] * asked.cells


@KINDS
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_patient_moves_the_sum_by_its_own_vector_and_by_no_more_than_the_sensitivity(
    kind: str, data: st.DataObject
) -> None:
    """The norm is that of whole numbers, exactly; the extremes of the ranges are tried on purpose."""
    asked = question(QUESTIONS[kind], noise_multiplier=data.draw(st.sampled_from([0.001, 0.3, 4.0, 1e6])))
    number = st.sampled_from([0.0, 100.0, 50.0, 250.0, -1e300, 1e300, 5e-324]) | st.floats(-300, 600) | st.just(np.nan)
    sex = st.sampled_from(["f", "m", "x", None])
    size = data.draw(st.integers(1, 5))
    columns = {
        "age": np.array(data.draw(st.lists(number, min_size=size, max_size=size)), np.float64),
        "pressure": np.array(data.draw(st.lists(number, min_size=size, max_size=size)), np.float64),
        "sex": np.array(data.draw(st.lists(sex, min_size=size, max_size=size)), object),
    }
    grid = asked.grid()
    mine = rounded(asked, columns, 0)
    assert sum(step**2 for step in mine) <= Fraction(grid.sensitivity) ** 2
    assert Fraction(grid.std) >= Fraction(asked.noise_multiplier) * Fraction(grid.sensitivity)
    without = {name: values[1:] for name, values in columns.items()}
    moved = asked.total(columns, grid.spacing) - asked.total(without, grid.spacing)
    assert moved.tolist() == mine


SQUARES = {
    "count": 1,
    "table": 1,
    "tables": 3,
    "by-hospital": 1,
    # Counted 1, 3 and 2 times.
    "marginals": 14,
    "sites": 1,
    "moments": 9,
    "covariance": 1,
    "linear-regression": 1,
    "quantiles": 2,
    "survival": 1,
    "centred-moments": 6.75,
}


@KINDS
def test_the_sensitivity_is_reached_where_every_number_is_at_an_end_of_its_range(kind: str) -> None:
    """Up to the grid's step, 2⁻¹⁸ of it here."""
    asked = question(QUESTIONS[kind])
    columns = {"age": np.array([100.0]), "pressure": np.array([250.0]), "sex": np.array(["f"], object)}
    assert np.linalg.norm(exact(asked, columns)) == pytest.approx(np.sqrt(SQUARES[kind]), rel=1e-5)
    assert asked.sensitivity == pytest.approx(np.sqrt(SQUARES[kind]), rel=1e-15)


@pytest.mark.parametrize("kind", ["moments", "centred-moments", "covariance", "sites"])
def test_every_patient_is_rounded_before_the_sum(kind: str) -> None:
    """So that the sum of n lies within n/2 steps of the one that was not rounded, and one patient is one vector."""
    asked, columns = question(QUESTIONS[kind]), patients(200)
    spacing = asked.grid().spacing
    one_by_one = np.sum([rounded(asked, columns, row) for row in range(200)], axis=0)
    assert np.array_equal(asked.total(columns, spacing), one_by_one)
    fine = asked.total(columns, spacing / 2**20) / 2.0**20
    assert np.abs(fine - one_by_one).max() <= 100
    assert not np.array_equal(np.rint(fine), one_by_one)


@KINDS
def test_equal_sums_have_equal_answers(kind: str) -> None:
    asked, columns = question(QUESTIONS[kind]), patients(100)
    assert answer_without_noise(asked, columns) == answer_without_noise(asked, columns)


@KINDS
def test_nobody_at_all_still_has_an_answer(kind: str) -> None:
    """Whatever the noise: nothing is divided by zero, and no answer is refused after it was paid for."""
    asked = question(QUESTIONS[kind])
    for level in (0.0, -50.0, 1e-9, 1.5, 8.0):
        for std in (0.0, 4.0):
            found = asked.answer(NoisedSum(np.full(asked.cells, level), std, 3))
            assert found == type(found).model_validate_json(found.model_dump_json())
    table = kind if kind == "count" else "patients"
    assert np.isfinite(column(asked.answer(NoisedSum(np.zeros(asked.cells), 4.0, 3)), table)).all()


@KINDS
def test_cells_that_hold_no_number_are_missing_and_a_lacking_column_is_named(kind: str) -> None:
    """A refusal that depended on a value would tell of it: one patient's odd cell moves nobody else's vector."""
    asked, columns = question(QUESTIONS[kind], where=[{"column": "age", "low": 18}]), patients(5)
    spacing = asked.grid().spacing
    columns["age"] = np.array(["61", "secret-name", None, "30", "inf"], object)
    others = {name: values[[0, 3]] for name, values in columns.items()}
    assert np.array_equal(asked.total(columns, spacing), asked.total(others, spacing))
    with pytest.raises(UnreadableColumn, match="no column 'age'"):
        asked.total({"other": np.zeros(5)}, asked.grid().spacing)
    with pytest.raises(UnreadableColumn, match="without columns"):
        asked.total({}, asked.grid().spacing)


FEW = {"column": "x", "categories": ["0.1", "1"], "missing_values": ["0.2"]}
NUMBER = {"column": "x", "low": 0, "high": 1, "missing_values": ["0.20"]}


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "table", "variables": [FEW]},
        {"kind": "table", "variables": [{"column": "x", "edges": [0.1, 0.5], "missing_values": ["0.2"]}]},
        {"kind": "table", "variables": [{"column": "x", "presence": True, "missing_values": ["2e-1"]}]},
        {"kind": "count", "where": [FEW | {"categories": ["1e-1"]}]},
        {"kind": "moments", "numbers": [NUMBER]},
        {"kind": "moments", "numbers": [NUMBER | {"column": "x"}, {"column": "x", "categories": ["0.10"]}]},
    ],
    ids=["categories", "bins", "presence", "condition", "number", "indicator"],
)
@pytest.mark.parametrize("rule", ["first", "any"])
def test_a_patient_whose_cell_makes_the_column_one_of_texts_moves_nobody_else(
    document: dict[str, Any], rule: str
) -> None:
    """Tables hold numbers where every cell is one: whether they do is up to a single patient."""
    asked = question(document | {"rows": rule})
    cells: list[Any] = ["0.10", "1e-1", "0.1", "1.0", "1", "0.20", "nan", " 0.30", "Infinity", True, np.float32(0.1)]
    who = [str(number) for number in range(len(cells))]

    def found(more: list[str]) -> NDArray[np.int64]:
        table = Table.of({"x": [*cells, *more], "patient": [*who, *(["17"] * len(more))]}, patient_column="patient")
        return asked.total(one_row_each(asked, table.columns, table.patients), asked.grid().spacing)

    moved = found(["unreadable", "again"]) - found([])
    assert np.linalg.norm(moved) <= asked.grid().sensitivity
