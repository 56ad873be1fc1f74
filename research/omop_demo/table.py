"""The study's table of patients in plain Python, as a hospital would export it: CSV or a workbook.

It follows the words of the section `cohort` and shares no code with the program that reads OMOP and FHIR.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from openpyxl import Workbook

from research.omop_demo.patients import OmopPerson, Patients
from research.omop_demo.vocabulary import Vocabulary
from study_protocol.study.cohort import PATIENT, Cohort, CohortColumn, IndexEvent

Cell = int | float | str | None
SHEET = "patients"
_ALL_DAYS = (-100_000, 100_000)


@dataclass(frozen=True, repr=False)
class _Event:
    domain: str
    concept: int
    day: date
    time: datetime | None = None
    amount: float | None = None
    unit: int = 0


def patient_table(patients: Patients, vocabulary: Vocabulary, cohort: Cohort) -> Iterator[dict[str, Cell]]:
    """Yield a row for each patient of the cohort, in the order of a snapshot. Its tables of events are left out."""
    events = _events(patients, vocabulary)
    for person in sorted(patients.persons, key=lambda person: str(person.id)):
        own = events[person.id]
        indexes = [event.day for event in own if _matches(event, cohort.index_event, vocabulary)]
        if not indexes:
            continue
        index = min(indexes) if cohort.index_event.occurrence == "first" else max(indexes)
        # The day of birth is not known, and counts as 1 July.
        years = max(index.year - person.birth_year - (index.month < 7), 0)
        if person.died and person.died.date() < index:
            continue
        if cohort.age is None or cohort.age[0] <= years <= cohort.age[1]:
            columns = sorted(cohort.columns.items())
            yield {PATIENT: str(person.id)} | {
                name: _cell(person, own, column, index, years, vocabulary) for name, column in columns
            }


def write_csv(path: Path, rows: Iterator[dict[str, Cell]]) -> None:
    """Write the table with commas. A missing cell is empty."""
    every_row = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(every_row[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(every_row)


def write_workbook(path: Path, rows: Iterator[dict[str, Cell]]) -> None:
    """Write the table into the sheet `SHEET`, its header in the first row. The library keeps 16 digits."""
    every_row = list(rows)
    book = Workbook(write_only=True)
    sheet = book.create_sheet(SHEET)
    for row in (list(every_row[0]), *(list(row.values()) for row in every_row)):
        sheet.append(row)
    book.save(path)


def _events(patients: Patients, vocabulary: Vocabulary) -> dict[int, list[_Event]]:
    events: dict[int, list[_Event]] = defaultdict(list)
    for visit in patients.visits:
        events[visit.person].append(_Event("visit", visit.concept, visit.starts.date(), visit.starts))
    for condition in patients.conditions:
        events[condition.person].append(_Event("condition", vocabulary.standard(condition.mapped), condition.day))
    for measured in patients.measurements:
        unit = vocabulary.standard(measured.unit)
        events[measured.person].append(
            _Event("measurement", measured.concept, measured.time.date(), measured.time, measured.amount, unit)
        )
    return events


def _matches(event: _Event, use: IndexEvent | CohortColumn, vocabulary: Vocabulary) -> bool:
    if event.domain != use.of or not event.concept:
        return False
    reached = vocabulary.ancestors(event.concept) if use.descendants else {event.concept}
    return not set(use.concepts or ()).isdisjoint(reached)


def _cell(
    person: OmopPerson, events: list[_Event], column: CohortColumn, index: date, years: int, vocabulary: Vocabulary
) -> Cell:
    first, last = column.days or _ALL_DAYS
    match column.of:
        case "age":
            return years
        case "sex":
            return (column.values or {}).get(str(person.gender)) or None
        case "death":
            return int(person.died is not None and first <= (person.died.date() - index).days <= last)
        case _:
            counted = [event for event in events if _matches(event, column, vocabulary)]
            return _cell_of([event for event in counted if first <= (event.day - index).days <= last], column, index)


def _cell_of(events: list[_Event], column: CohortColumn, index: date) -> Cell:
    match column.take:
        case "any":
            return int(bool(events))
        case "count":
            return len(events)
        case "day":
            return min(((event.day - index).days for event in events), default=None)
        case _:
            return _of_amounts(events, column)


def _of_amounts(events: list[_Event], column: CohortColumn) -> float | None:
    units = column.units or {}
    # Times of one day as texts of ISO 8601.
    amounts = sorted(
        (event.day, event.time is None, str(event.time), event.amount * units[str(event.unit)])
        for event in events
        if event.amount is not None
    )
    if not amounts:
        return None
    numbers = [amount for *_, amount in amounts]
    ways = {
        "first": numbers[0],
        "last": numbers[-1],
        "least": min(numbers),
        "largest": max(numbers),
        "mean": math.fsum(numbers) / len(numbers),
    }
    return ways[column.take]
