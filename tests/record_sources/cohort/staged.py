"""Staged rows, a cohort with columns of each kind, and the tables that it has."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from record_sources.cohort.counts import CohortCounts
from record_sources.cohort.making import make_tables
from study_protocol.study.cohort import Cohort
from tests.record_sources.cohort.brute_force import Staged

START = date(2020, 2, 27)


# 1 covers 10 and 11, 2 covers 11, too.
COVERED = [(1, 1), (1, 10), (1, 11), (2, 2), (2, 11), (3, 3)]


UNITS, VALUES = {"8840": 1.0, "8753": 18.016, "0": 2.0}, {"45877985": "yes", "45878245": "no", "9": ""}


COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"of": "age"},
    "sex": {"of": "sex", "values": {"8507": "m", "8532": "f", "8521": ""}},
    "dead": {"of": "death", "days": [0, 3]},
    "dead day": {"of": "death", "take": "day"},
    "had": {"of": "condition", "concepts": [1], "days": [-2, 1]},
    "alone": {"of": "condition", "concepts": [1, 2], "descendants": False, "take": "count"},
    "times": {"of": "visit", "concepts": [1, 2], "take": "count", "days": [-3, 0]},
    "first day": {"of": "drug", "concepts": [3, 1], "take": "day"},
    **{
        f"{take} number": {"of": "measurement", "concepts": [1], "take": take, "units": UNITS, "days": [-3, 2]}
        for take in ("first", "last", "least", "largest", "mean")
    },
    **{
        f"{take} word": {"of": "observation", "concepts": [2], "take": take, "values": VALUES}
        for take in ("first", "last")
    },
}


EVENTS = {
    "event": {"of": "condition", "concepts": [1, 2, 3], "days": [-4, 4]},
    "drug-days": {"of": "drug", "concepts": [1], "descendants": False},
}


def cohort(**entries: Any) -> Cohort:
    index = {"of": "visit", "concepts": [1]}
    return Cohort.model_validate({"index_event": index, "columns": COLUMNS, "events": EVENTS} | entries)


def made(rows: Staged, asked: Cohort) -> tuple[dict[str, list[tuple[Any, ...]]], CohortCounts]:
    connection = rows.database()
    counts = make_tables(connection, asked)
    names = [
        name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall()
    ]
    return {name: connection.execute(f'FROM "{name}"').fetchall() for name in names}, counts


def visits(*rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [("visit", patient, 1, START + timedelta(days=day), None, None, None, None) for patient, day in rows]


def measured(day: int, value: float | None, unit: int | None, time: int | None = None) -> tuple[Any, ...]:
    moment = None if time is None else datetime(2020, 3, 1, time)  # noqa: DTZ001
    return ("measurement", "a", 10, START + timedelta(days=day), moment, value, None, unit)


PERSON = ("a", 8507, 1980, 2, 29, None)


def one_column(rows: Staged, column: dict[str, Any], **entries: Any) -> list[Any]:
    found, _ = made(rows, cohort(columns={"x": column}, events={}, **entries))
    return [cell for _, cell in sorted(found["patients"])]
