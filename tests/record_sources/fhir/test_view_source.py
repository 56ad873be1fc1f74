"""Views as a source: tables of patients and of events, and faults by file and resource."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from record_sources.errors import SourceError
from record_sources.fhir import fhir_source
from record_sources.fhir.files import UNREAD
from record_sources.source_file.description import FhirDescription
from record_sources.working.workspace import Workspace, no_progress


def view(name: str, resource: str, **paths: str) -> str:
    columns = [{"name": key, "path": path} for key, path in paths.items()]
    return json.dumps({"name": name, "resource": resource, "select": [{"column": columns}]})


SEXES = {"1": "male", "02": "female"}
PATIENTS = view("patients", "Patient", patient="getResourceKey()", sex="gender")
VALUES = view(
    "glucose", "Observation", patient="subject.getReferenceKey(Patient)", value="value.ofType(Quantity).value"
)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of two patients and three observations, and a folder of two views."""
    for folder, files in (("export", {}), ("views", {"a.json": PATIENTS, "b.json": VALUES})):
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text)
    patients = [
        {"resourceType": "Patient", "id": name, "gender": sex} for name, sex in (("1", "male"), ("02", "female"))
    ]
    write(tmp_path / "export/Patient.ndjson", patients)
    values = [("o1", "02", 1.5), ("o2", "1", 2), ("o3", "1", 2.5)]
    lines = "\n".join(
        json.dumps(
            {
                "resourceType": "Observation",
                "id": name,
                "subject": {"reference": f"Patient/{patient}"},
                "valueQuantity": {"value": number},
            }
        )
        for name, patient, number in values
    )
    (tmp_path / "export/Observation.0.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def write(path: Path, resources: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(resource) + "\n" for resource in resources))


def filled(folder: Path, views: str = "views") -> dict[str, list[tuple[Any, ...]]]:
    description = FhirDescription.model_validate(
        {"kind": "fhir", "folder": "export", "views": views}, context={"folder": folder}
    )
    source = fhir_source(description, None)
    with TemporaryDirectory(dir=folder) as working, Workspace(Path(working)) as workspace:
        tables = source.fill(workspace, no_progress).tables
        return {
            table: workspace.connection.execute(f'SELECT * FROM "{table}" ORDER BY ALL').fetchall() for table in tables
        }


def test_each_view_makes_one_table(export: Path) -> None:
    assert filled(export) == {
        "patients": [("02", "female"), ("1", "male")],
        "glucose": [("02", 1.5), ("1", 2.0), ("1", 2.5)],
    }


def test_one_file_makes_one_table(export: Path) -> None:
    assert list(filled(export, "views/b.json")) == ["glucose"]
    (export / "views/a.json").rename(export / "a.json")
    (export / "views/c.json").write_text(VALUES.replace("glucose", "lactate"))
    with pytest.raises(SourceError, match=r"views has 2 views. Give the one with a row for each patient the name"):
        filled(export)


def test_a_fault_names_view_file_and_resource(export: Path) -> None:
    twice = {"resourceType": "Patient", "id": "3", "name": [{"family": "Secret"}, {"family": "Other"}]}
    write(export / "export/Patient.ndjson", [{"resourceType": "Patient", "id": "1"}, twice])
    (export / "views/a.json").write_text(view("patients", "Patient", patient="id", family="name.family"))
    with pytest.raises(SourceError, match=r"view patients, Patient.ndjson, resource 2: column family has 2") as told:
        filled(export)
    assert "Secret" not in str(told.value)
    collection = {"name": "family", "path": "name.family", "collection": True}
    listed = {
        "name": "patients",
        "resource": "Patient",
        "select": [{"column": [{"name": "patient", "path": "id"}, collection]}],
    }
    (export / "views/a.json").write_text(json.dumps(listed))
    with pytest.raises(SourceError, match=r"column family is a collection. A table holds one value in a cell"):
        filled(export)


def test_a_resource_that_is_there_twice_is_refused(export: Path) -> None:
    again = {"resourceType": "Observation", "id": "o2", "subject": {"reference": "Patient/1"}}
    write(export / "export/Observation.1.ndjson", [again])
    with pytest.raises(SourceError, match=r"1 ids of Observation occur more than once. Export once into an empty"):
        filled(export)


def test_files_that_are_not_read_are_counted(export: Path) -> None:
    (export / "export/more.jsonl").write_text("not read")
    description = FhirDescription.model_validate(
        {"kind": "fhir", "folder": "export", "views": "views"}, context={"folder": export}
    )
    with TemporaryDirectory(dir=export) as working, Workspace(Path(working)) as workspace:
        remarks = fhir_source(description, None).fill(workspace, no_progress).remarks
    assert remarks == (f"1 of the folder: {UNREAD}",)
