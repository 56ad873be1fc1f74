"""The columns of the table of patients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from record_sources.cohort.events import ALL_DAYS, COUNTED_EVENTS
from record_sources.working.workspace import quoted
from study_protocol.study.cohort import PATIENTS, CohortColumn

# Events with a number, in the study's unit. Adding 0 makes -0 to 0, which no order tells apart.
_NUMBERS = """
CREATE OR REPLACE TEMP TABLE valued_event AS
SELECT c.patient, c.day, c.time, c.value * u.factor + 0.0 AS cell,
    CASE WHEN u.factor IS NULL AND c.unit = -1 THEN 'unknown unit' WHEN u.factor IS NULL THEN 'unit'
        WHEN NOT isfinite(c.value * u.factor) THEN 'infinite' END AS fault
FROM counted_event c LEFT JOIN (
    SELECT unnest($keys::BIGINT[]) AS unit, unnest($factors::DOUBLE[]) AS factor
) u ON u.unit = coalesce(c.unit, 0)
WHERE c.value IS NOT NULL
"""
# Events with a word. Without a listed word, concept 0 and no concept mean that the value is missing.
_WORDS = """
CREATE OR REPLACE TEMP TABLE valued_event AS
SELECT c.patient, c.day, c.time, w.word AS cell, CASE WHEN w.word IS NULL THEN 'value' END AS fault
FROM counted_event c LEFT JOIN (
    SELECT unnest($keys::BIGINT[]) AS concept, unnest($words::VARCHAR[]) AS word
) w ON w.concept = coalesce(c.value_concept, 0)
WHERE coalesce(w.word <> '', coalesce(c.value_concept, 0) <> 0)
"""
_SEXES = """
CREATE OR REPLACE TEMP TABLE valued_event AS
SELECT s.patient, w.word AS cell, CASE WHEN w.word IS NULL THEN 'sex' END AS fault
FROM selected_patient s LEFT JOIN (
    SELECT unnest($keys::BIGINT[]) AS concept, unnest($words::VARCHAR[]) AS word
) w ON w.concept = s.sex
WHERE coalesce(w.word <> '', s.sex <> 0)
"""
_FAULTS = {
    "unit": "{count} of {all} values have a unit that units does not list. Ask the study lead to add it",
    "unknown unit": "{count} of {all} values have a unit without a standard concept. Give it one where they come from",
    "infinite": "{count} of {all} values are no finite numbers. Correct or remove them",
    "value": "{count} of {all} values are concepts that values does not list. Ask the study lead to add them",
    "sex": "{count} of {all} patients have a gender concept that values does not list. Ask the study lead to add it",
}
# The same order from both ends: the last of it is the last event.
_ORDER = "ORDER BY day, time NULLS LAST, cell"
_CELLS = {
    "any": "1",
    "count": "count(*)",
    "day": "min(day)",
    "first": f"first(cell {_ORDER})",
    "last": f"last(cell {_ORDER})",
    "least": "min(cell)",
    "largest": "max(cell)",
    # A sum of doubles depends on their order, which only a list keeps for sure.
    "mean": "list_aggregate(list(cell ORDER BY cell), 'favg')",
}


class CohortColumns:
    """Fills columns of the table of patients from the tables `selected_patient` and `staged_event`.

    Attributes:
        without_value: column -> its events without a value that counts, and all of its events.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.without_value: dict[str, tuple[int, int]] = {}

    @staticmethod
    def type_of(column: CohortColumn) -> str:
        """Return the type of a column in DuckDB."""
        if column.values is not None:
            return "VARCHAR"
        return "BIGINT" if column.units is None else "DOUBLE"

    def fill(self, name: str, column: CohortColumn) -> Iterator[str]:
        """Fill one column, and yield a sentence for each kind of cell that has no place in it."""
        match column.of:
            case "age":
                self._take(name, "SELECT patient, age AS cell FROM selected_patient")
            case "sex":
                yield from self._valued(name, _SEXES, column)
                self._take(name, "SELECT patient, cell FROM valued_event")
            case "death":
                first, last = column.days or ALL_DAYS
                cell = "1" if column.take == "any" else "died - index_day"
                self._take(
                    name,
                    f"SELECT patient, {cell} AS cell FROM selected_patient "  # noqa: S608
                    "WHERE died - index_day BETWEEN $first AND $last",
                    {"first": first, "last": last},
                    default=0 if column.take == "any" else None,
                )
            case _:
                yield from self._fill_from_events(name, column)

    def _fill_from_events(self, name: str, column: CohortColumn) -> Iterator[str]:
        first, last = column.days or ALL_DAYS
        parameters = {"named": list(column.concepts or ()), "descendants": column.descendants, "domain": column.of}
        self._connection.execute(COUNTED_EVENTS, {**parameters, "first": first, "last": last})
        table = "counted_event"
        if column.units is not None or column.values is not None:
            yield from self._valued(name, _WORDS if column.units is None else _NUMBERS, column)
            table = "valued_event"
            self._note_without_value(name)
        self._take(
            name,
            f"SELECT patient, {_CELLS[column.take]} AS cell FROM {table} GROUP BY patient",  # noqa: S608
            default=0 if column.take in ("any", "count") else None,
        )

    def _note_without_value(self, name: str) -> None:
        events, valued = (
            self._connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608
            for table in ("counted_event", "valued_event")
        )
        if valued < events:
            self.without_value[name] = events - valued, events

    def _valued(self, name: str, statement: str, column: CohortColumn) -> Iterator[str]:
        # Bound as lists, because words of the settings must never become SQL.
        meanings: dict[str, Any] = dict(column.values or column.units or {})
        parameters = {
            "keys": list(map(int, meanings)),
            "factors" if column.values is None else "words": list(meanings.values()),
        }
        self._connection.execute(statement, parameters)
        # Counted and not listed, as a list would show cells.
        rows_of_fault = self._connection.execute("SELECT fault, count(*) FROM valued_event GROUP BY fault").fetchall()
        number = dict[str | None, int](rows_of_fault)
        rows = sum(number.values())
        for fault, sentence in _FAULTS.items():
            if fault in number:
                yield f"column {name}: {sentence.format(count=number[fault], all=rows)}"

    def _take(
        self, name: str, query: str, parameters: dict[str, Any] | None = None, *, default: int | None = None
    ) -> None:
        cell = quoted(name)
        # Patients without such an event have no row to update from.
        if default is not None:
            self._connection.execute(f"UPDATE {PATIENTS} SET {cell} = {default}")  # noqa: S608
        self._connection.execute(
            f"UPDATE {PATIENTS} SET {cell} = taken.cell FROM ({query}) AS taken "  # noqa: S608
            f"WHERE taken.patient = {PATIENTS}.patient",
            parameters or {},
        )
