"""Cohorts from FHIR files, beside the same patients in an OMOP database."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from record_sources.errors import SourceError
from record_sources.snapshot.preparation import prepare
from record_sources.source_file.description import FhirDescription
from record_sources.sources import source_of
from study_protocol.study.cohort import Cohort
from tests.factories.fhir_exports import (
    ACT_CODE,
    ANCESTORS,
    CONCEPTS,
    ICD10CM,
    LOINC,
    RXNORM,
    SNOMED,
    UCUM,
    coded,
    patient,
    resource,
    write_export,
    write_vocabulary,
)
from tests.record_sources.omop import example

COHORT = Cohort.model_validate(
    {
        "index_event": {"of": "visit", "concepts": [9201, 9203]},
        "columns": {
            "age": {"of": "age"},
            "sex": {"of": "sex", "values": {"8507": "male", "8532": "female"}},
            "died": {"of": "death", "take": "day"},
            "diabetes": {"of": "condition", "concepts": [201820], "take": "count"},
            "metformin": {"of": "drug", "concepts": [1503297], "take": "day"},
            "glucose": {
                "of": "measurement",
                "concepts": [3004501],
                "take": "last",
                "units": {"8840": 1, "8753": 18.016, "0": 1},
            },
            "smokes": {
                "of": "observation",
                "concepts": [40000001],
                "take": "first",
                "values": {"4188539": "yes", "45884084": ""},
            },
        },
        "events": {"conditions": {"of": "condition", "concepts": [201820, 201826]}},
    }
)
_VISITS = {9201: ("IMP", "ACUTE"), 9203: ("EMER",)}
_DISEASES = {201820: ((SNOMED, "73211009"),), 201826: ((SNOMED, "44054006"), (ICD10CM, "E11.9"))}
_DRUGS = ((RXNORM, "6809"), ("http://hl7.org/fhir/sid/ndc", "0777-3105-02"))
# Unit of OMOP with its source, and the elements of a quantity.
_UNITS: list[tuple[tuple[int | None, str | None], dict[str, Any]]] = [
    ((None, None), {}),
    ((8840, "mg/dL"), {"system": UCUM, "code": "mg/dL", "unit": "milligrams"}),
    ((8753, "mmol/L"), {"system": UCUM, "code": "mmol/L"}),
]
_ANSWERS: list[tuple[int | None, dict[str, Any]]] = [
    (None, {}),
    (4188539, {"valueBoolean": True}),
    (45884084, {"valueCodeableConcept": coded(LOINC, "LA6576-8")}),
    (0, {"valueCodeableConcept": {"text": "seldom"}}),
]

_days = st.integers(-3, 3).map(lambda days: date(2020, 3, 1) + timedelta(days=days))
_people = st.fixed_dictionaries(
    {
        "gender": st.sampled_from([(8507, "male"), (8532, "female"), (0, None)]),
        "birth": st.sampled_from([(), (1950,), (1950, 7), (1950, 3, 1), (1950, 2, 30)]),
        "death": st.one_of(st.none(), _days, st.sampled_from(["unknown", date(9999, 12, 31)])),
    }
)
_events = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["visit", "visit", "condition", "drug", "measurement", "observation"]),
        "who": st.integers(0, 3),
        "day": _days,
        "hour": st.one_of(st.none(), st.integers(0, 23)),
        "choice": st.integers(0, 11),
        "value": st.integers(-8, 8).map(lambda value: value / 4),
    }
)


class _Population:
    """The same patients as lines of NDJSON and as rows of OMOP's tables."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def add_person(self, number: int, person: dict[str, Any]) -> None:
        sex, gender = person["gender"]
        year, month, day = (*person["birth"], None, None, None)[:3]
        self.rows["person"].append((number, f"p{number}", sex, year, month, day))
        elements: dict[str, Any] = {}
        if gender:
            elements["gender"] = gender
        if year:
            elements["birthDate"] = "-".join(f"{part:02}" for part in person["birth"])
        if person["death"] == "unknown":
            elements["deceasedBoolean"] = True
            self.rows["death"].append((number, None, None))
        elif person["death"]:
            elements["deceasedDateTime"] = f"{person['death']}T23:59:59-08:00"
            self.rows["death"].append((number, person["death"], None))
        self.lines.append(patient(str(number), **elements))

    def add_event(self, identifier: int, event: dict[str, Any]) -> None:
        day, hour, who = event["day"], event["hour"], event["who"]
        time = None if hour is None else datetime(day.year, day.month, day.day, hour)  # noqa: DTZ001
        written = f"{day}" if hour is None else f"{day}T{hour:02}:00:00+05:30"
        getattr(self, f"_{event['kind']}")(event, str(identifier), (who, day, time), written)

    def _line(self, kind: str, identifier: str, who: int, **elements: Any) -> None:
        self.lines.append(resource(kind, identifier, str(who), **elements))

    def _visit(self, event: dict[str, Any], identifier: str, start: Any, written: str) -> None:
        concept = list(_VISITS)[event["choice"] % 2]
        who, day, time = start
        self.rows["visit_occurrence"].append((who, concept, day, time, day))
        codes = _VISITS[concept]
        elements = {"class": {"system": ACT_CODE, "code": codes[event["choice"] % len(codes)]}}
        self._line("Encounter", identifier, who, period={"start": written}, **elements)

    def _condition(self, event: dict[str, Any], identifier: str, start: Any, written: str) -> None:
        concept = list(_DISEASES)[event["choice"] % 2]
        who, day, time = start
        self.rows["condition_occurrence"].append((who, concept, day, time))
        codes = _DISEASES[concept]
        code = coded(*codes[event["choice"] // 2 % len(codes)])
        self._line("Condition", identifier, who, code=code, onsetDateTime=written)

    def _drug(self, event: dict[str, Any], identifier: str, start: Any, written: str) -> None:
        who, day, time = start
        self.rows["drug_exposure"].append((who, 1503297, day, time))
        code = coded(*_DRUGS[event["choice"] % 2])
        if event["choice"] % 3:
            element: dict[str, Any] = {"medicationCodeableConcept": code}
        else:
            element = {"medicationReference": {"reference": f"Medication/{identifier}"}}
            self.lines.append({"resourceType": "Medication", "id": identifier, "code": code})
        self._line("MedicationRequest", identifier, who, authoredOn=written, **element)

    def _measurement(self, event: dict[str, Any], identifier: str, start: Any, written: str) -> None:
        who, day, time = start
        (unit, source), elements = _UNITS[event["choice"] % len(_UNITS)]
        self.rows["measurement"].append((who, 3004501, day, time, event["value"], None, unit, source))
        quantity = {"value": event["value"], **elements}
        code = coded(LOINC, "2345-7")
        self._line("Observation", identifier, who, code=code, effectiveDateTime=written, valueQuantity=quantity)

    def _observation(self, event: dict[str, Any], identifier: str, start: Any, written: str) -> None:
        who, day, time = start
        answer, elements = _ANSWERS[event["choice"] % len(_ANSWERS)]
        self.rows["observation"].append((who, 40000001, day, time, None, answer, None, None))
        code = coded(LOINC, "72166-2")
        self._line("Observation", identifier, who, code=code, effectiveDateTime=written, **elements)


def _omop(path: Path, population: _Population) -> Any:
    rows: dict[str, Any] = {name: population.rows[name] for name in example.TABLES}
    rows["concept"] = [(concept[0], concept[3] or None, concept[5] or None) for concept in CONCEPTS]
    rows["concept_ancestor"] = ANCESTORS
    rows["concept_relationship"] = []
    return example.sqlite(path, **rows)


def _digests(description: Any, target: Path) -> dict[str, str] | str:
    try:
        prepared = prepare(description, COHORT, target)
    except SourceError as error:
        return str(error)
    prepared.discard()
    return dict(prepared.record.files)


def _compare(people: list[dict[str, Any]], events: list[dict[str, Any]], folder: Path) -> Any:
    population = _Population()
    for number, person in enumerate(people):
        population.add_person(number, person)
    for identifier, event in enumerate(events):
        population.add_event(identifier, {**event, "who": event["who"] % len(people)})
    # Lines of all kinds, in no order of theirs.
    files = {"0.ndjson": population.lines[::-2], "1.ndjson.gz": population.lines[-2::-2]}
    export = write_export(folder / "export", files)
    vocabulary = write_vocabulary(folder / "vocabulary")
    fhir = FhirDescription(kind="fhir", folder=export, vocabulary=vocabulary)
    of_fhir = _digests(fhir, folder / "fhir" / "same")
    assert of_fhir == _digests(_omop(folder / "omop.db", population), folder / "omop" / "same")
    return of_fhir


_PEOPLE: list[dict[str, Any]] = [
    {"gender": (8507, "male"), "birth": (1950, 3, 1), "death": date(2020, 3, 3)},
    {"gender": (8532, "female"), "birth": (1950,), "death": None},
    {"gender": (0, None), "birth": (), "death": None},
    {"gender": (8507, "male"), "birth": (1950, 3, 1), "death": "unknown"},
    {"gender": (8507, "male"), "birth": (1950, 3, 1), "death": date(9999, 12, 31)},
    {"gender": (8507, "male"), "birth": (1950, 2, 30), "death": None},
]
_EVENTS = [
    {"kind": kind, "who": n % len(_PEOPLE), "day": date(2020, 3, 1 + n % 4), "hour": hour, "choice": n, "value": n / 4}
    for n in range(12)
    for kind in ("visit", "condition", "drug", "measurement", "observation")
    for hour in (None, 8)
]


def test_the_same_patients_have_the_same_digests_as_in_omop(tmp_path: Path) -> None:
    for name in ("fhir", "omop"):
        (tmp_path / name).mkdir()
    files = _compare(_PEOPLE, _EVENTS, tmp_path)
    assert sorted(files) == ["conditions.parquet", "patients.parquet"]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(_people, min_size=1, max_size=4), st.lists(_events, max_size=25))
def test_any_patients_have_the_same_digests_as_in_omop(
    people: list[dict[str, Any]], events: list[dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("fhir", "omop"):
            (Path(folder) / name).mkdir()
        _compare(people, events, Path(folder))


def test_remarks_count_what_is_left_out(tmp_path: Path) -> None:
    visit = resource("Encounter", "1", period={"start": "2020-03-01"}) | {"class": {"system": ACT_CODE, "code": "IMP"}}
    lost = resource("Encounter", "2", "b", period={"start": "2020-03"})
    export = write_export(tmp_path / "export", {"all.ndjson": [patient("a"), patient("b"), visit, lost]})
    vocabulary = write_vocabulary(tmp_path / "vocabulary")
    (export / "more.jsonl").write_text("not read")
    steps: list[tuple[int, int | None, str]] = []
    prepared = prepare(
        FhirDescription(kind="fhir", folder=export, vocabulary=vocabulary),
        COHORT,
        tmp_path / "snapshot",
        lambda rows, expected, table: steps.append((rows, expected, table)),
    )
    prepared.discard()
    assert prepared.remarks[0] == "1 of Encounter: its date has no day"
    assert "1 patients in the cohort" in prepared.remarks
    assert any("do not end in .ndjson" in remark for remark in prepared.remarks)
    assert steps == [(4, 4, "resources")]
    assert prepared.record.queries == {}
    assert prepared.record.place == f"FHIR files in {export.resolve()}"


def test_a_vocabulary_needs_a_cohort(tmp_path: Path) -> None:
    export, vocabulary = write_export(tmp_path / "export", {}), write_vocabulary(tmp_path / "vocabulary")
    with pytest.raises(SourceError, match=r"section \[cohort\].*--settings"):
        source_of(FhirDescription(kind="fhir", folder=export, vocabulary=vocabulary), None)
