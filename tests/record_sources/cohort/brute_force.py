"""A cohort in plain Python: one patient at a time, by the sentences of the documentation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import duckdb

from record_sources.working.staging import TABLES
from study_protocol.study.cohort import Cohort, CohortColumn

PERSON: tuple[str, ...] = ("patient", "sex", "birth_year", "birth_month", "birth_day", "died", "dead")
EVENT: tuple[str, ...] = ("domain", "patient", "concept", "day", "time", "value", "value_concept", "unit")


@dataclass
class Staged:
    """Rows of the staging tables."""

    person: list[tuple[Any, ...]]
    event: list[tuple[Any, ...]]
    covered: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Without a word, the dead are those with a day.
        self.person = [row if len(row) == len(PERSON) else (*row, row[-1] is not None) for row in self.person]

    def database(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config={"threads": 1})
        connection.execute(TABLES)
        for table in ("person", "event", "covered"):
            for row in getattr(self, table):
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        return connection


class Refused(Exception):
    """The cohort has no such tables."""


@dataclass
class Patient:
    patient: str
    sex: int
    died: date | None
    index: date
    age: int | None


def _matches(staged: Staged, concept: int, named: Iterable[int], descendants: bool) -> list[int]:
    """The named concepts that cover this one."""
    covered = set(staged.covered)
    return [name for name in named if (name, concept) in covered and (descendants or name == concept)]


def born_never(person: dict[str, Any]) -> bool:
    if person["birth_year"] is None:
        return False
    try:
        date(person["birth_year"], person["birth_month"] or 1, person["birth_day"] or 1)
    except ValueError:
        return True
    return not 1800 <= person["birth_year"] <= 2200


def age_at(person: dict[str, Any], index: date) -> int | None:
    if person["birth_year"] is None or born_never(person):
        return None
    month, day = person["birth_month"], person["birth_day"]
    if month is None:
        if person["birth_year"] == index.year:
            return 0
        month, day = 7, 1
    birthday = (month, day or 1)
    return index.year - person["birth_year"] - ((index.month, index.day) < birthday)


def patients_of(staged: Staged, cohort: Cohort) -> tuple[list[Patient], Counter[str]]:
    kept, left_out = list[Patient](), Counter[str]()
    asked = cohort.index_event
    subjects = [column.of for column in cohort.columns.values()]
    for row in staged.person:
        person = dict(zip(PERSON, row, strict=True))
        days = [
            event["day"]
            for event in (dict(zip(EVENT, row, strict=True)) for row in staged.event)
            if event["patient"] == person["patient"] and event["domain"] == asked.of
            if _matches(staged, event["concept"], asked.concepts, asked.descendants)
        ]
        if not days:
            left_out["without_index_event"] += 1
            continue
        index = min(days) if asked.occurrence == "first" else max(days)
        age = age_at(person, index)
        if "death" in subjects and person["dead"] and person["died"] is None:
            left_out["died_unknown"] += 1
        elif person["died"] is not None and person["died"] < index:
            left_out["died_before"] += 1
        elif age is not None and age < 0:
            left_out["born_after"] += 1
        elif age is None and (cohort.age is not None or ("age" in subjects and born_never(person))):
            left_out["without_age"] += 1
        elif cohort.age is not None and not cohort.age[0] <= (age or 0) <= cohort.age[1]:
            left_out["outside_age"] += 1
        else:
            kept.append(Patient(person["patient"], person["sex"], person["died"], index, age))
    return kept, left_out


def _counted(staged: Staged, patient: Patient, asked: Any) -> list[tuple[int, dict[str, Any], list[int]]]:
    """Day, event and the named concepts of each event of a patient that counts."""
    found: list[tuple[int, dict[str, Any], list[int]]] = []
    for row in staged.event:
        event = dict(zip(EVENT, row, strict=True))
        if event["patient"] != patient.patient or event["domain"] != asked.of:
            continue
        day = (event["day"] - patient.index).days
        named = _matches(staged, event["concept"], asked.concepts or (), asked.descendants)
        if named and (asked.days is None or asked.days[0] <= day <= asked.days[1]):
            found.append((day, event, named))
    return found


def _word(concept: int | None, values: dict[str, str]) -> str | None:
    if str(concept or 0) not in values:
        if concept:
            raise Refused
        return None
    return values[str(concept or 0)] or None


def _cell_of_event(event: dict[str, Any], column: CohortColumn) -> Any:
    if column.values is not None:
        return _word(event["value_concept"], column.values)
    assert column.units is not None
    if event["value"] is None:
        return None
    factor = column.units.get(str(event["unit"] or 0))
    if factor is None or not math.isfinite(event["value"] * factor):
        raise Refused
    return event["value"] * factor


def cell(staged: Staged, patient: Patient, column: CohortColumn) -> Any:
    if column.of == "age":
        return patient.age
    if column.of == "sex":
        return _word(patient.sex, column.values or {})
    if column.of == "death":
        day = None if patient.died is None else (patient.died - patient.index).days
        counts = day is not None and (column.days is None or column.days[0] <= day <= column.days[1])
        return int(counts) if column.take == "any" else day if counts else None
    events = _counted(staged, patient, column)
    match column.take:
        case "any":
            return int(bool(events))
        case "count":
            return len(events)
        case "day":
            return min((day for day, _, _ in events), default=None)
        case _:
            return _of_values(events, column)


def _of_values(events: list[tuple[int, dict[str, Any], list[int]]], column: CohortColumn) -> Any:
    cells = [
        (
            day,
            event["time"] or datetime(9999, 12, 31),  # noqa: DTZ001
            _cell_of_event(event, column),
        )
        for day, event, _ in events
    ]
    cells = sorted(each for each in cells if each[2] is not None)
    if not cells:
        return None
    values = [each[2] for each in cells]
    match column.take:
        case "first":
            return values[0]
        case "last":
            return values[-1]
        case "least":
            return min(values)
        case "largest":
            return max(values)
        case _:
            return math.fsum(values) / len(values)


def tables(staged: Staged, cohort: Cohort) -> dict[str, list[tuple[Any, ...]]]:
    """Each table's rows in any order, the columns by name. Raises Refused."""
    patients, _ = patients_of(staged, cohort)
    names = sorted(cohort.columns)
    found = {
        "patients": [
            (patient.patient, *(cell(staged, patient, cohort.columns[name]) for name in names)) for patient in patients
        ]
    }
    for name, events in cohort.events.items():
        found[name] = [
            (patient.patient, str(concept), day)
            for patient in patients
            for day, _, named in _counted(staged, patient, events)
            for concept in named
        ]
    return found
