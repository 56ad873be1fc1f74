"""Questions by hospital: blocks, sensitivity by brute force, answers, silent hospitals."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from study_protocol.queries.answer import NO_ANSWER, NoisedSum
from study_protocol.queries.rows import one_row_each
from study_protocol.study.queries import QueryDocument
from tests.factories.questions import DOCUMENTS, column, exact, patients, question

HOSPITALS = ("east", "north", "south", "west")
ASKED = {name: DOCUMENTS[name] | {"by": "hospital"} for name in ("count", "table", "tables", "moments")} | {
    name: DOCUMENTS[name] | {"by": "hospital"} for name in ("quantiles", "survival")
}
KINDS = pytest.mark.parametrize("kind", ASKED)


def by_hospital(kind: str, **entries: Any) -> Any:
    return question(ASKED[kind], hospitals=list(HOSPITALS), **entries)


def pooled(kind: str) -> Any:
    return question({name: value for name, value in ASKED[kind].items() if name != "by"})


@KINDS
def test_the_noise_and_the_sensitivity_are_those_of_the_pooled_question(kind: str) -> None:
    asked, alone = by_hospital(kind), pooled(kind)
    assert asked.grid() == alone.grid()
    assert asked.sensitivity == alone.sensitivity
    assert asked.cells == 4 * alone.cells
    cost = QueryDocument(question=asked).cost()
    assert (cost.cells, cost.noise_std) == (asked.cells, alone.grid().std)


@KINDS
@pytest.mark.parametrize("rows", ["first", "last", "mean", "any"])
def test_a_patient_with_several_rows_moves_the_vector_by_no_more_than_the_sensitivity(kind: str, rows: str) -> None:
    """Every pair of rows from odd values: outside of ranges, codes, other categories, nothing."""
    asked = by_hospital(kind, rows=rows)
    grid = asked.grid()
    values = itertools.product((-9.0, 61.0, 1e300, np.nan), (0.0, 150.0, np.nan), ("f", "M", "?", None))
    for one, two in itertools.pairwise(values):
        cells = [one, two, (50.0, 140.0, "m"), (50.0, 140.0, "f")]
        table = {
            "age": np.array([row[0] for row in cells]),
            "pressure": np.array([row[1] for row in cells]),
            "sex": np.array([row[2] for row in cells], object),
        }
        everybody = one_row_each(asked, table, ["p", "p", "q", "r"])
        others = one_row_each(asked, {name: cells[2:] for name, cells in table.items()}, ["q", "r"])
        sums = [asked.placed(asked.total(each, grid.spacing), "north") for each in (everybody, others)]
        moved = [int(step) for step in sums[0] - sums[1]]
        assert sum(step**2 for step in moved) <= Fraction(grid.sensitivity) ** 2
        # Nothing of it is in another hospital's block.
        assert not np.any(np.delete(sums[0].reshape(4, -1), 1, axis=0))


@KINDS
def test_without_noise_every_hospital_has_its_own_answer_beside_the_pooled_one(kind: str) -> None:
    asked, alone, records = by_hospital(kind), pooled(kind), patients(800)
    parts = {name: {key: cells[i::4] for key, cells in records.items()} for i, name in enumerate(HOSPITALS)}
    total = (
        sum(asked.placed(asked.total(part, asked.grid().spacing), name) for name, part in parts.items())
        * asked.grid().spacing
    )
    answer = asked.answer(NoisedSum(total, 0.0, 1))
    whole = alone.answer(NoisedSum(exact(alone, records), 0.0, 1))
    tables = {table.name: table for table in answer.tables}
    for expected in whole.tables:
        figure = "statistic" if expected.name == "log-rank" else "estimate"
        assert column(answer, expected.name, figure) == pytest.approx(column(whole, expected.name, figure), nan_ok=True)
        mine = alone.answer(NoisedSum(exact(alone, parts["south"]), 0.0, 1))
        found = tables[f"{expected.name}-by-hospital"]
        place = found.columns.index(figure)
        values = [np.nan if row[place] is None else row[place] for row in found.rows if row[0] == "south"]
        assert values == pytest.approx(column(mine, expected.name, figure), nan_ok=True)


@KINDS
def test_a_hospital_that_dropped_out_reads_no_answer_and_is_in_no_number(kind: str) -> None:
    """Its block holds noise alone, here a thousand, which would show."""
    asked, alone, records = by_hospital(kind), pooled(kind), patients(200)
    total = np.full((4, alone.cells), 1000.0)
    total[:3] = exact(alone, records)
    sum_of_three = NoisedSum(total.ravel(), 0.0, 1, frozenset(HOSPITALS[:3]))
    answer = asked.answer(sum_of_three).suppressed(5)
    expected = alone.answer(NoisedSum(3 * exact(alone, records), 0.0, 1)).suppressed(5)
    first = expected.tables[0].name
    assert column(answer, first) == pytest.approx(column(expected, first), nan_ok=True)
    rows = [row for row in answer.tables[0].rows if row[0] == "west"]
    assert len(rows) == 1
    assert NO_ANSWER in rows[0]
    assert not any(isinstance(value, float) for value in rows[0])
    assert any("west: no answer" in note for note in answer.notes)


@KINDS
def test_the_noise_of_the_pooled_answer_is_that_of_all_blocks(kind: str) -> None:
    asked, std = by_hospital(kind), 3.0
    alone = pooled(kind)
    total = exact(alone, patients(4000)) / 4
    answer = asked.answer(NoisedSum(np.tile(total, 4), std, 1))
    expected = alone.answer(NoisedSum(4 * total, 2 * std, 5))
    first = expected.tables[0].name
    assert column(answer, first, "dp_error") == pytest.approx(
        column(expected, first, "dp_error"), rel=0.15, nan_ok=True
    )


def test_old_questions_keep_their_digest() -> None:
    """They were written before questions could be by hospital."""
    assert "by" not in question(DOCUMENTS["count"]).model_dump(mode="json")
    dumped = question(DOCUMENTS["quantiles"] | {"by": None}).model_dump(mode="json")
    assert dumped["by"] is None
    assert "hospitals" not in dumped


@pytest.mark.parametrize("hospitals", [["west", "east"], ["east", "east"], ["East"]])
def test_blocks_are_named_once_and_in_order(hospitals: list[str]) -> None:
    with pytest.raises(ValidationError):
        question(ASKED["count"], hospitals=hospitals)


def test_hospitals_without_by_and_columns_where_none_are_known_are_refused() -> None:
    with pytest.raises(ValidationError, match='goes with by = "hospital"'):
        question(DOCUMENTS["count"], hospitals=["east"])
    with pytest.raises(ValidationError):
        question(DOCUMENTS["count"], by="ward")


def test_the_roster_is_filled_in_once_and_makes_another_question() -> None:
    document = QueryDocument(question=question(ASKED["count"]))
    filled = document.of_hospitals(["north", "east"])
    assert filled.question.hospitals_asked == ("east", "north")
    assert filled.of_hospitals(["north", "east", "west"]) is filled
    assert filled.digest() != document.digest()
