"""Files of ViewDefinitions, and the sentence for each that does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from record_sources.errors import SourceError
from record_sources.fhir.view_definitions import read_definitions
from tests.record_sources.fhir.view_cells import column


def test_definitions_are_files_with_a_name_of_their_own(tmp_path: Path) -> None:
    definition = {"resourceType": "ViewDefinition", "name": "patients", "resource": "Patient", "status": "active"}
    text = json.dumps({**definition, "select": [{"column": [column("id", "id", description="key")]}]})
    (tmp_path / "a.json").write_text(text)
    ((found, kept),) = read_definitions(tmp_path)
    assert (found.name, kept) == ("patients", text)
    for other, words in (
        (text.replace("patients", "Patients"), "b.json: another view has the name Patients too"),
        (text.replace('"name": "patients", ', ""), "b.json: the view needs a name"),
        (text.replace('"status"', '"fhirVersion": ["5.0.0"], "status"'), "fhirVersion must name a version of FHIR R4"),
        (text.replace("ViewDefinition", "Library"), r"b.json: resourceType: String should match"),
        (text[:-1], r"b.json: it is no JSON in UTF-8"),
    ):
        (tmp_path / "b.json").write_text(other)
        with pytest.raises(SourceError, match=words):
            read_definitions(tmp_path)
    with pytest.raises(SourceError, match=r"there is no ViewDefinition. Name a JSON file"):
        read_definitions(tmp_path / "gone")
