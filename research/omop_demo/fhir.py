"""The patients as FHIR R4 bulk files: NDJSON, a file for each kind of resource."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from research.omop_demo.patients import Diagnosis, MeasuredValue, OmopPerson, Patients, Visit
from research.omop_demo.vocabulary import Concept, Vocabulary

_SYSTEMS = {
    "SNOMED": "http://snomed.info/sct",
    "LOINC": "http://loinc.org",
    "UCUM": "http://unitsofmeasure.org",
    "Visit": "https://fhir-terminology.ohdsi.org",
}
_GENDERS = {8507: "male", 8532: "female"}
_INPATIENT = 9201
_CLASS = {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "IMP"}
_ACTIVE = {"system": "http://terminology.hl7.org/CodeSystem/condition-clinical", "code": "active"}
Resource = dict[str, Any]


def write_resources(folder: Path, patients: Patients, vocabulary: Vocabulary) -> None:
    """Write the four files. Patient.id is the person_id of the OMOP database. Times are local and written as UTC."""
    folder.mkdir(parents=True, exist_ok=True)
    concepts = vocabulary.concepts
    _write(folder, "Patient", (_patient(person) for person in patients.persons))
    _write(folder, "Encounter", (_encounter(visit, concepts) for visit in patients.visits))
    _write(folder, "Condition", (_condition(condition, concepts) for condition in patients.conditions))
    _write(folder, "Observation", (_observation(measured, concepts) for measured in patients.measurements))


def _patient(person: OmopPerson) -> Iterator[tuple[str, Any]]:
    yield "id", str(person.id)
    yield "identifier", [{"value": person.source}]
    if person.gender:
        yield "gender", _GENDERS[person.gender]
    yield "birthDate", f"{person.birth_year:04}"
    if person.died:
        yield "deceasedDateTime", _time(person.died)


def _encounter(visit: Visit, concepts: dict[int, Concept]) -> Iterator[tuple[str, Any]]:
    yield "id", str(visit.id)
    yield "status", "finished"
    yield "class", _CLASS
    if visit.concept != _INPATIENT:
        # No code of FHIR says intensive care as OMOP's visit does.
        yield "type", [_coded(concepts[visit.concept])]
    yield "subject", _reference("Patient", visit.person)
    yield "period", {"start": _time(visit.starts), "end": _time(visit.ends)}


def _condition(condition: Diagnosis, concepts: dict[int, Concept]) -> Iterator[tuple[str, Any]]:
    yield "id", str(condition.id)
    yield "clinicalStatus", {"coding": [_ACTIVE]}
    coded = _coded(concepts[condition.mapped]) if condition.mapped else {}
    yield "code", coded | {"text": condition.source}
    yield "subject", _reference("Patient", condition.person)
    yield "encounter", _reference("Encounter", condition.visit)
    yield "onsetDateTime", condition.day.isoformat()


def _observation(measured: MeasuredValue, concepts: dict[int, Concept]) -> Iterator[tuple[str, Any]]:
    yield "id", str(measured.id)
    yield "status", "final"
    yield "code", _coded(concepts[measured.concept])
    yield "subject", _reference("Patient", measured.person)
    yield "encounter", _reference("Encounter", measured.visit)
    yield "effectiveDateTime", _time(measured.time)
    unit = concepts[measured.unit]
    yield (
        "valueQuantity",
        {"value": measured.amount, "unit": measured.unit_source, "system": _SYSTEMS["UCUM"], "code": unit.code},
    )


def _coded(concept: Concept) -> Resource:
    code = str(concept.id) if concept.vocabulary == "Visit" else concept.code
    return {"coding": [{"system": _SYSTEMS[concept.vocabulary], "code": code, "display": concept.name}]}


def _reference(kind: str, number: int) -> Resource:
    return {"reference": f"{kind}/{number}"}


def _time(moment: datetime) -> str:
    return f"{moment.isoformat()}Z"


def _write(folder: Path, kind: str, resources: Iterable[Iterator[tuple[str, Any]]]) -> None:
    with (folder / f"{kind}.ndjson").open("w", encoding="utf-8") as file:
        for elements in resources:
            file.write(json.dumps({"resourceType": kind, **dict(elements)}) + "\n")
