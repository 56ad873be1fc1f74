"""Whole exports in the staging tables, beside the same patients in an OMOP database."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from record_sources.errors import SourceError
from tests.factories.fhir_exports import (
    ACT_CODE,
    RXNORM,
    SNOMED,
    UCUM,
    Staged,
    coded,
    observation,
    patient,
    resource,
    write_export,
    write_vocabulary,
)

DAY = date(2020, 1, 2)


def _staged(tmp_path: Path, *lines: dict[str, Any], **files: list[dict[str, Any]]) -> Staged:
    export = write_export(
        tmp_path / "export", {"0.ndjson": lines, **{f"{name}.ndjson": more for name, more in files.items()}}
    )
    return Staged(export, write_vocabulary(tmp_path / "vocabulary"), tmp_path / "work")


def _glucose(identifier: str, who: str = "a", **elements: Any) -> dict[str, Any]:
    return observation(identifier, "2345-7", who, **elements)


def test_values_answers_and_units_become_concepts(tmp_path: Path) -> None:
    staged = _staged(
        tmp_path,
        patient("a"),
        _glucose("1", valueQuantity={"value": 100, "system": UCUM, "code": "mg/dL"}),
        _glucose("2", valueQuantity={"value": 5.5}),
        _glucose("3", valueQuantity={"value": 1, "unit": "mg/dl"}),
        _glucose("4", valueBoolean=True),
        _glucose("5", valueCodeableConcept={"text": "high"}),
        _glucose("6", valueCodeableConcept=coded("http://loinc.org", "LA6576-8")),
    )
    cells = sorted((event[5:] for event in staged.events), key=repr)
    assert cells == sorted(
        [
            (100.0, None, 8840),
            (5.5, None, None),
            (1.0, None, -1),
            (None, 4188539, None),
            (None, 0, None),
            (None, 45884084, None),
        ],
        key=repr,
    )
    assert staged.counts == {"measurement: no standard concept for the unit of the value": 1}


def _encounter(identifier: str, code: str, *types: dict[str, Any], system: str = ACT_CODE) -> dict[str, Any]:
    element = resource("Encounter", identifier, type=list(types), period={"start": "2020-01-02"})
    return {**element, "class": {"system": system, "code": code}}


def test_an_encounter_is_one_visit(tmp_path: Path) -> None:
    intensive = coded("https://fhir-terminology.ohdsi.org", "32037")
    staged = _staged(
        tmp_path,
        patient("a"),
        _encounter("1", "IMP"),
        _encounter("2", "EMER", coded(SNOMED, "44054006")),
        _encounter("3", "ACUTE", intensive),
        _encounter("4", "own", intensive, system="urn:local"),
        _encounter("5", "FLD"),
    )
    assert sorted(event[2] for event in staged.events) == [9201, 9203, 32037, 32037]
    assert staged.counts == {"visit: no standard concept for the code": 1}


def test_medications_are_found_in_any_file(tmp_path: Path) -> None:
    request = {"authoredOn": "2020-01-02"}
    medication = {"resourceType": "Medication", "id": "m", "code": coded(RXNORM, "6809")}
    staged = _staged(
        tmp_path,
        resource("MedicationRequest", "1", medicationReference={"reference": "Medication/m"}, **request),
        resource("MedicationRequest", "2", medicationReference={"reference": "urn:uuid:m"}, **request),
        resource("MedicationRequest", "3", medicationReference={"reference": "Medication/lost"}, **request),
        resource("MedicationAdministration", "1", medicationReference={"reference": "Medication/m"}),
        z=[patient("a"), medication, medication],
    )
    assert staged.events == [("drug", "a", 1503297, DAY, None, None, None, None)] * 2
    assert staged.counts == {
        "Medication: copies of a resource, kept once": 1,
        "MedicationAdministration: no date": 1,
        "drug: no standard concept for the code": 1,
        "drug: the medication is not in the export, so no concept": 1,
    }


def test_copies_of_a_resource_count_once(tmp_path: Path) -> None:
    staged = _staged(tmp_path, patient("a"), _glucose("1"), _glucose("1"), _glucose("2"), z=[_glucose("1")])
    assert len(staged.events) == 2
    assert staged.counts == {"Observation: copies of a resource, kept once": 2}


def test_one_id_in_two_kinds_of_resources_is_no_copy(tmp_path: Path) -> None:
    condition = resource("Condition", "1", code=coded(SNOMED, "44054006"), onsetDateTime="2020-01-02")
    assert len(_staged(tmp_path, patient("1"), patient("a"), _glucose("1"), condition).events) == 2


def test_several_versions_of_a_resource_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="several versions: 1 of Condition, 2 of Observation"):
        _staged(
            tmp_path,
            patient("a"),
            *(_glucose(str(n), valueInteger=value) for n in range(2) for value in (1, 2)),
            resource("Condition", "1", recordedDate="2020-01-02"),
            # Also if one of them is left out.
            resource("Condition", "1", recordedDate="2020-01"),
        )


def test_a_patient_who_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^2 ids of Patient occur more than once"):
        _staged(tmp_path, patient("secret"), patient("b"), patient("b"), patient("c"), z=[patient("secret")])


def test_an_export_without_patients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no Patient"):
        _staged(tmp_path, _glucose("1"))


def test_events_of_others_and_other_resources_are_counted(tmp_path: Path) -> None:
    staged = _staged(
        tmp_path,
        patient("a"),
        _glucose("1", "stranger"),
        _glucose("2", effectiveDateTime="2020-01"),
        {"resourceType": "Procedure", "id": "1"},
        {"resourceType": "OperationOutcome"},
        patient("", gender="male"),
    )
    assert staged.events == []
    assert [row[0] for row in staged.persons] == ["a"]
    assert staged.counts == {
        "Observation: its date has no day": 1,
        "OperationOutcome: this kind of resource is not read": 1,
        "Patient: no id": 1,
        "Procedure: this kind of resource is not read": 1,
        "observation: the patient is not in the export": 1,
    }


def test_resources_may_be_empty_or_odd(tmp_path: Path) -> None:
    odd: list[Any] = [None, [], {}, "text", 17, True, [None], [[]], [{"coding": [17]}]]
    lines = [
        {"resourceType": kind, "id": f"{n}", "subject": {"reference": "Patient/a"}} | dict.fromkeys(elements, element)
        for n, element in enumerate(odd)
        for kind, elements in (
            ("Observation", ("code", "component", "valueQuantity", "status")),
            ("Encounter", ("class", "type", "period")),
            ("Condition", ("code", "verificationStatus", "onsetPeriod")),
            ("MedicationRequest", ("medicationReference", "contained", "medicationCodeableConcept")),
            ("Medication", ("code",)),
        )
    ]
    dated = [line | {"effectiveDateTime": "2020-01-02", "recordedDate": "2020-01-02"} for line in lines]
    staged = _staged(tmp_path, patient("a"), *dated)
    assert staged.events == []


_PROGRAM = r"""
import re, sys
from pathlib import Path
from tests.factories.fhir_exports import Staged
staged = Staged(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
# Not ru_maxrss, which begins with what the process had that started this one.
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text()).group(1)
print(len(staged.persons), len(staged.events), peak)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_export(tmp_path: Path) -> None:
    export, vocabulary = tmp_path / "export", write_vocabulary(tmp_path / "vocabulary")
    export.mkdir()
    text = "x" * 2000
    with (export / "all.ndjson").open("w") as file:
        for n in range(300_000):
            who = f"{n // 30}"
            # One event in a hundred is of a concept that is named.
            code = "2345-7" if n % 100 == 1 else "0-0"
            line = observation(str(n), code, who, note=[{"text": text}])
            file.write(json.dumps(patient(who) if n % 30 == 0 else line) + "\n")
    program = [sys.executable, "-c", _PROGRAM, export, vocabulary, tmp_path / "work"]
    root = Path(__file__).parents[3]
    finished = subprocess.run(program, check=True, capture_output=True, text=True, cwd=root)
    persons, events, peak = map(int, finished.stdout.split())
    assert (persons, events) == (10_000, sum(n % 30 != 0 for n in range(1, 300_000, 100)))
    assert peak < 500 * 1024
    assert (export / "all.ndjson").stat().st_size > 600e6
