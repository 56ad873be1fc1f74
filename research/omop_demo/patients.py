"""The patients of the eICU demo with derived dates: visits, diagnoses and measurements.

eICU has minutes from the admission to the unit, and of dates the year of discharge alone. Dates are derived here, the
same at every call: the first hospital stay of a patient in a year begins on 1 July, and each further one 11 days after
the one before, in the order of their numbers, the stay in which the patient died last. Stays may overlap. Times of day
and minutes between events are eICU's own. The year of birth is the year of the first stay less the age, with 90 for
"> 89".

Two things are changed on purpose, as hospitals have them: glucose of every third unit stay is in mmol/L, and creatinine
of every fourth in µmol/L, by the number of the stay.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path

from research.omop_demo.vocabulary import Vocabulary
from wardround.demo.scenarios import DataMissing

REGIONS = ("Midwest", "South", "West", "Northeast")
_DAYS_BETWEEN_STAYS = 11
_OLDEST = 90
_MG_OF_MMOL_GLUCOSE, _UMOL_OF_MG_CREATININE = 18.016, 88.42
_UNITS = {
    "heartrate": "/min",
    "respiratoryrate": "/min",
    "temperature": "Cel",
    "sodium": "mmol/L",
    "glucose": "mg/dL",
    "creatinine": "mg/dL",
    "albumin": "g/dL",
    "bilirubin": "mg/dL",
    "bun": "mg/dL",
    "wbc": "K/uL",
    "hematocrit": "%",
}
_Row = dict[str, str]


@dataclass(frozen=True, repr=False)
class OmopPerson:
    """One patient. `gender` is a concept, 0 if unknown."""

    id: int
    source: str
    gender: int
    gender_source: str
    birth_year: int
    ethnicity: str
    died: datetime | None


@dataclass(frozen=True, repr=False)
class Visit:
    """A hospital stay or a stay in a unit of it. Both are visits, so visits of a patient overlap."""

    id: int
    person: int
    concept: int
    starts: datetime
    ends: datetime
    source: str


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """A diagnosis at the admission to a unit. `mapped` is the concept of the code, perhaps not standard, or 0."""

    id: int
    person: int
    visit: int
    source: str
    mapped: int
    day: date


@dataclass(frozen=True, repr=False)
class MeasuredValue:
    """The worst value of the first day in a unit, with the concept of its unit, perhaps not standard."""

    id: int
    person: int
    visit: int
    source: str
    concept: int
    time: datetime
    amount: float
    unit: int
    unit_source: str


@dataclass(frozen=True, repr=False)
class Patients:
    """All patients of the build, and what is known of them."""

    persons: list[OmopPerson] = field(default_factory=list[OmopPerson])
    visits: list[Visit] = field(default_factory=list[Visit])
    conditions: list[Diagnosis] = field(default_factory=list[Diagnosis])
    measurements: list[MeasuredValue] = field(default_factory=list[MeasuredValue])


def load_patients(folder: Path, vocabulary: Vocabulary, region: str | None = None) -> Patients:
    """Return the patients of all hospitals, or of the hospitals of one region.

    A patient keeps number, dates and death in every region. Patients without a known age are left out, because OMOP
    requires a year of birth.

    Raises:
        DataMissing: a file of the eICU demo is not in the folder.
    """
    regions = {row["hospitalid"]: row["region"] for row in _rows(folder, "hospital")}
    stays = _rows(folder, "patient")
    admitted = _admissions(stays)
    numbers = {patient: number for number, patient in enumerate(sorted({row["uniquepid"] for row in stays}), start=1)}
    by_patient: dict[str, list[_Row]] = defaultdict(list)
    for row in sorted(stays, key=lambda row: (admitted[_stay(row)], int(row["patientunitstayid"]))):
        by_patient[row["uniquepid"]].append(row)
    builder = _Builder(
        vocabulary, admitted, *(_by_unit_stay(folder, name) for name in ("apacheapsvar", "apachepredvar"))
    )
    for patient in sorted(by_patient):
        rows = by_patient[patient]
        hospital_rows = [row for row in rows if region is None or regions[row["hospitalid"]] == region]
        person = builder.person(numbers[patient], rows)
        if hospital_rows and person is not None:
            builder.add(person, hospital_rows)
    return builder.patients


class _Builder:
    def __init__(
        self, vocabulary: Vocabulary, admitted: dict[str, datetime], values: dict[str, _Row], predicted: dict[str, _Row]
    ):
        self._codes, self._admitted, self._values, self._predicted = vocabulary.codes, admitted, values, predicted
        self.patients = Patients()

    def person(self, number: int, rows: list[_Row]) -> OmopPerson | None:
        age = next((row["age"] for row in rows if row["age"]), None)
        if age is None:
            return None
        years = _OLDEST if age.startswith(">") else int(age)
        died = [self._unit_time(row, "hospitaldischargeoffset") for row in rows if _expired(row)]
        gender = rows[0]["gender"]
        return OmopPerson(
            number,
            rows[0]["uniquepid"],
            self._codes.get(("patient.gender", gender), 0),
            gender,
            self._admitted[_stay(rows[0])].year - years,
            rows[0]["ethnicity"],
            min(died, default=None),
        )

    def add(self, person: OmopPerson, rows: list[_Row]) -> None:
        self.patients.persons.append(person)
        by_stay: dict[str, list[_Row]] = defaultdict(list)
        for row in rows:
            by_stay[_stay(row)].append(row)
        for stay, units in by_stay.items():
            ends = max(self._unit_time(row, "hospitaldischargeoffset") for row in units)
            self._add_visit(person, ("visit", "hospital stay"), self._admitted[stay], ends, f"hospital stay {stay}")
            for row in units:
                self._add_unit_stay(person, row)

    def _add_unit_stay(self, person: OmopPerson, row: _Row) -> None:
        starts, number = self._unit_time(row), row["patientunitstayid"]
        # A step-down unit is no intensive care.
        kind = "hospital stay" if row["unitstaytype"] == "stepdown/other" else "ICU stay"
        ends = self._unit_time(row, "unitdischargeoffset")
        visit = self._add_visit(person, ("visit", kind), starts, ends, f"{row['unittype']} {number}")
        if row["apacheadmissiondx"]:
            self._add_condition(person, visit, ("patient.apacheadmissiondx", row["apacheadmissiondx"]), starts.date())
        if self._predicted.get(number, {}).get("diabetes") == "1":
            self._add_condition(person, visit, ("apachepredvar.diabetes", "1"), starts.date())
        for source, amount, unit in _measured(int(number), self._values.get(number, {})):
            concept, unit_concept = self._codes["apacheapsvar", source], self._codes["unit", unit]
            into = self.patients.measurements
            into.append(
                MeasuredValue(len(into) + 1, person.id, visit, source, concept, starts, amount, unit_concept, unit)
            )

    def _add_visit(
        self, person: OmopPerson, code: tuple[str, str], starts: datetime, ends: datetime, source: str
    ) -> int:
        into = self.patients.visits
        into.append(Visit(len(into) + 1, person.id, self._codes[code], starts, max(starts, ends), source))
        return len(into)

    def _add_condition(self, person: OmopPerson, visit: int, code: tuple[str, str], day: date) -> None:
        into, source = self.patients.conditions, "diabetes" if code[0].endswith("diabetes") else code[1]
        into.append(Diagnosis(len(into) + 1, person.id, visit, source, self._codes.get(code, 0), day))

    def _unit_time(self, row: _Row, offset: str | None = None) -> datetime:
        minutes = (int(row[offset]) if offset else 0) - int(row["hospitaladmitoffset"])
        return self._admitted[_stay(row)] + timedelta(minutes=minutes)


def _admissions(stays: list[_Row]) -> dict[str, datetime]:
    """Return hospital stay -> the derived time of admission."""
    by_year: dict[tuple[str, int], set[tuple[bool, int]]] = defaultdict(set)
    times: dict[str, time] = {}
    for row in stays:
        by_year[row["uniquepid"], int(row["hospitaldischargeyear"])].add((_expired(row), int(_stay(row))))
        times[_stay(row)] = time.fromisoformat(row["hospitaladmittime24"])
    return {
        str(stay): datetime.combine(date(year, 7, 1) + timedelta(days=_DAYS_BETWEEN_STAYS * rank), times[str(stay)])
        for (_, year), found in by_year.items()
        for rank, (_, stay) in enumerate(sorted(found))
    }


def _measured(stay: int, row: _Row) -> Iterator[tuple[str, float, str]]:
    for source, unit in _UNITS.items():
        if row.get(source, "") in ("", "-1"):
            continue
        amount = float(row[source])
        if source == "glucose" and stay % 3 == 0:
            yield source, round(amount / _MG_OF_MMOL_GLUCOSE, 2), "mmol/L"
        elif source == "creatinine" and stay % 4 == 0:
            yield source, round(amount * _UMOL_OF_MG_CREATININE, 1), "umol/L"
        else:
            yield source, amount, unit


def _stay(row: _Row) -> str:
    return row["patienthealthsystemstayid"]


def _expired(row: _Row) -> bool:
    return row["hospitaldischargestatus"] == "Expired"


def _by_unit_stay(folder: Path, name: str) -> dict[str, _Row]:
    return {row["patientunitstayid"]: row for row in _rows(folder, name)}


def _rows(folder: Path, name: str) -> list[_Row]:
    path = folder / f"{name}.csv.gz"
    if not path.is_file():
        raise DataMissing(f"{path} is not there: name the folder of the eICU demo")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
