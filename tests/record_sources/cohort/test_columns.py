"""Cells of the table of patients: units, words, and values that do not count."""

from __future__ import annotations

from typing import Any

import pytest

from record_sources.cohort.columns import CohortColumns
from record_sources.errors import SourceError
from tests.record_sources.cohort.brute_force import Staged
from tests.record_sources.cohort.staged import (
    COLUMNS,
    COVERED,
    PERSON,
    START,
    cohort,
    made,
    measured,
    one_column,
    visits,
)


@pytest.mark.parametrize(
    ("take", "expected"),
    [("first", 90.0), ("last", 5 * 18.0), ("least", 54.0), ("largest", 90.0), ("mean", 78.0)],
)
def test_two_units_of_one_measurement_become_one(take: str, expected: float) -> None:
    """Of the first day, the earliest time. Of the last day, what has no time is last."""
    rows = [measured(-1, 90.0, 1, 8), measured(-1, 78 / 18, 2, 9), measured(1, 54.0, 1, 23), measured(1, 5.0, 2)]
    rows += [measured(1, None, None), measured(9, 1.0, 1), measured(-2, 1.0, 1)]
    column = {"of": "measurement", "concepts": [1], "take": take, "units": {"1": 1.0, "2": 18.0}, "days": [-1, 1]}
    assert one_column(Staged([PERSON], visits(("a", 0)) + rows, COVERED), column) == [pytest.approx(expected)]


@pytest.mark.parametrize(("unit", "listed"), [(7, "0"), (-1, "0"), (None, "1"), (0, "1")])
def test_an_unknown_unit_is_refused_with_column_and_count(unit: int | None, listed: str) -> None:
    rows = Staged([PERSON], [*visits(("a", 0)), measured(0, 12345.0, unit), measured(1, 1.0, int(listed))], COVERED)
    column = {"of": "measurement", "concepts": [1], "take": "mean", "units": {listed: 1.0}}
    fault = "without a standard concept" if unit == -1 else "that units does not list"
    with pytest.raises(SourceError, match=f"column x: 1 of 2 values have a unit {fault}") as raised:
        one_column(rows, column)
    assert "12345" not in str(raised.value)
    # What does not count is not looked at.
    assert one_column(rows, column | {"days": [1, 2]}) == [1.0]


def test_events_without_a_value_are_counted() -> None:
    rows: list[tuple[Any, ...]] = visits(("a", 0))
    rows += [("measurement", "a", 1, START, None, value, None, None) for value in (None, 1.0, None)]
    rows += [("observation", "a", 2, START, None, None, answer, None) for answer in (0, 45877985, 9)]
    _, counts = made(Staged([PERSON], rows, COVERED), cohort())
    numbers = {name: (2, 3) for name in COLUMNS if name.endswith("number")}
    assert counts.without_value == numbers | {"first word": (2, 3), "last word": (2, 3)}
    assert "column mean number: 2 of 3 events have no value that counts" in counts.in_words()


def test_a_column_has_the_type_of_its_cells() -> None:
    kinds = {name: CohortColumns.type_of(column) for name, column in cohort().columns.items()}
    assert (kinds["age"], kinds["sex"], kinds["mean number"], kinds["last word"]) == (
        "BIGINT",
        "VARCHAR",
        "DOUBLE",
        "VARCHAR",
    )
