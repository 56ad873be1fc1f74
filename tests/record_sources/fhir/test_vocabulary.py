"""Vocabulary files, and the standard concepts of codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from record_sources.errors import SourceError
from record_sources.fhir.vocabulary import load_vocabulary
from tests.factories.fhir_exports import (
    ANCESTORS,
    CONCEPTS,
    ICD10CM,
    LOINC,
    SNOMED,
    Staged,
    coded,
    cohort,
    observation,
    patient,
    resource,
    write_export,
    write_vocabulary,
)


def _condition(who: str, *codings: tuple[str, str]) -> dict[str, Any]:
    coding = [{"system": system, "code": code} for system, code in codings]
    return resource("Condition", who, who, code={"coding": coding}, recordedDate="2020-01-02")


def _concepts(tmp_path: Path, *resources: dict[str, Any], vocabulary: Path | None = None) -> list[tuple[str, int]]:
    export = write_export(tmp_path / "export", {"all.ndjson": [patient("a"), *resources]})
    staged = Staged(export, vocabulary or write_vocabulary(tmp_path / "vocabulary"), tmp_path / "work")
    return sorted((event[0], event[2]) for event in staged.events)


_OHDSI = "https://fhir-terminology.ohdsi.org"
_CODES = [
    ([(SNOMED, "44054006")], {("condition", 201826)}),
    ([(ICD10CM, "E11.9")], {("condition", 201826)}),
    # Maps to two concepts: one event each.
    ([(ICD10CM, "E11.311")], {("condition", 201826), ("condition", 443238)}),
    # One diagnosis in several systems counts once. A standard code wins, wherever it stands.
    ([(ICD10CM, "E11.311"), (SNOMED, "73211009")], {("condition", 201820)}),
    ([("urn:local", "1"), (ICD10CM, "E11.9"), (ICD10CM, "E11.311")], {("condition", 201826)}),
    # The domain is that of the concept. A relationship that is no longer valid does not count.
    ([(ICD10CM, "Z99")], {("observation", 4000000)}),
    ([(_OHDSI, "201826")], {("condition", 201826)}),
    ([(_OHDSI, "35206882")], {("condition", 201826)}),
    # Codes that no vocabulary has are not guessed.
    ([(_OHDSI, "no number")], set()),
    ([(ICD10CM, "E119")], set()),
    ([("http://hl7.org/fhir/sid/icd-10", "E11.9")], set()),
    ([("urn:local", "44054006")], set()),
    ([], set()),
]


def test_codes_become_standard_concepts(tmp_path: Path) -> None:
    lines = [line for n, (codes, _) in enumerate(_CODES) for line in (patient(str(n)), _condition(str(n), *codes))]
    export = write_export(tmp_path / "export", {"all.ndjson": lines})
    staged = Staged(export, write_vocabulary(tmp_path / "vocabulary"), tmp_path / "work")
    expected = {(str(n), *event) for n, (_, events) in enumerate(_CODES) for event in events}
    assert sorted((event[1], event[0], event[2]) for event in staged.events) == sorted(expected)
    assert staged.counts == {"condition: no standard concept for the code": 5}


def test_the_valid_one_of_two_concepts_with_one_code_counts(tmp_path: Path) -> None:
    assert _concepts(tmp_path, observation("1", "1-1")) == [("measurement", 3000002)]


def test_without_relationships_only_standard_codes_have_concepts(tmp_path: Path) -> None:
    vocabulary = write_vocabulary(tmp_path / "vocabulary", maps=None)
    events = [_condition("a", (ICD10CM, "E11.9")), {**_condition("a", (SNOMED, "44054006")), "id": "2"}]
    assert _concepts(tmp_path, *events, vocabulary=vocabulary) == [("condition", 201826)]


@pytest.mark.parametrize("descendants", [False, True])
def test_descendants_are_covered_where_they_count(tmp_path: Path, descendants: bool) -> None:
    export = write_export(tmp_path / "export", {"all.ndjson": [patient("a"), _condition("a", (ICD10CM, "E11.9"))]})
    settings = cohort([201820, 9201], descendants=descendants)
    staged = Staged(export, write_vocabulary(tmp_path / "vocabulary"), tmp_path / "work", settings)
    below = {pair for pair in ANCESTORS if pair[0] in (201820, 9201)} if descendants else set()
    assert set(staged.covered) == below | {(201820, 201820), (9201, 9201)}
    assert len(staged.events) == descendants


@pytest.mark.parametrize(
    ("concept", "sentence"),
    [
        (1, "Concept 1 is not in the hospital's vocabulary."),
        (35206882, "Concept 35206882 is not a standard concept. Its standard concept is 201826."),
        (45000001, "Its standard concept is 201826 and 443238."),
        (999, "Concept 999 is no longer valid."),
        (21600712, "Concept 21600712 is a class"),
    ],
)
def test_a_named_concept_that_cannot_be_used_is_refused(tmp_path: Path, concept: int, sentence: str) -> None:
    export = write_export(tmp_path / "export", {"all.ndjson": [patient("a")]})
    with pytest.raises(SourceError) as error:
        Staged(export, write_vocabulary(tmp_path / "vocabulary"), tmp_path / "work", cohort([9201, concept]))
    assert sentence in str(error.value)


def _fault(tmp_path: Path) -> str:
    export = write_export(tmp_path / "export", {"all.ndjson": [patient("a")]})
    with pytest.raises(SourceError) as error:
        Staged(export, tmp_path / "vocabulary", tmp_path / "work", cohort([201820], descendants=True))
    return str(error.value)


@pytest.mark.quick("CONCEPT.csv")
@pytest.mark.parametrize("file", ["CONCEPT.csv", "CONCEPT_ANCESTOR.csv", "CONCEPT_RELATIONSHIP.csv"])
def test_a_faulty_file_is_named_and_not_shown(tmp_path: Path, file: str) -> None:
    path = write_vocabulary(tmp_path / "vocabulary") / file
    header, *lines = path.read_text().splitlines()
    faults = {
        "\n".join([header.replace("\t", ","), *lines]): "does not have the columns",
        "": "is not text in UTF-8 with tabs",
        "\n".join([header, *lines, "12\tsecret"]): "is not text in UTF-8 with tabs",
        # Numbers are cut off in a cell: counted over the file.
        "\n".join([header, *("x" + line for line in lines)]): " rows have a concept id that is no number",
    }
    for content, sentence in faults.items():
        path.write_text(content)
        message = _fault(tmp_path)
        assert f"{file}" in message
        assert sentence in message
        assert "secret" not in message
        (tmp_path / "work" / "work.duckdb").unlink()
    if file != "CONCEPT_ANCESTOR.csv":
        content = "\n".join([header, *lines, ""]).encode()
        path.write_bytes(content.replace(b"Maps", b"\xff").replace(b"LOINC", b"\xff"))
        assert "is not text in UTF-8" in _fault(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "vocabulary")
    for file in ("CONCEPT_ANCESTOR.csv", "CONCEPT.csv"):
        (tmp_path / "vocabulary" / file).unlink()
        assert f"has no {file}" in _fault(tmp_path)
        (tmp_path / "work" / "work.duckdb").unlink()


def test_an_empty_vocabulary_knows_no_concept(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "vocabulary", concepts=[], maps=[], ancestors=[])
    assert "Concept 201820 is not in the hospital's vocabulary" in _fault(tmp_path)


def test_a_code_of_a_unit_is_told_by_its_capitals(tmp_path: Path) -> None:
    concepts = [*CONCEPTS, (1, "Unit", "UCUM", "S", "MG/DL", "")]
    vocabulary = write_vocabulary(tmp_path / "vocabulary", concepts=concepts)
    quantity = {"value": 1, "system": "http://unitsofmeasure.org", "code": "mg/dL"}
    export = write_export(
        tmp_path / "export", {"all.ndjson": [patient("a"), observation("1", "2345-7", valueQuantity=quantity)]}
    )
    [event] = Staged(export, vocabulary, tmp_path / "work").events
    assert event[-1] == 8840


def test_codes_stand_in_their_own_vocabulary(tmp_path: Path) -> None:
    other = {**observation("2", "2345-7"), "code": coded(SNOMED, "2345-7")}
    assert _concepts(tmp_path, observation("1", "2345-7"), other) == [("measurement", 3004501)]
    assert LOINC != SNOMED


def test_descendants_of_an_empty_file_are_not_none(tmp_path: Path) -> None:
    export = write_export(tmp_path / "export", {"Patient.ndjson": [patient("a")]})
    vocabulary = write_vocabulary(tmp_path / "vocabulary", ancestors=[])
    with pytest.raises(SourceError, match=r"CONCEPT_ANCESTOR\.csv is empty"):
        Staged(export, vocabulary, tmp_path / "work", cohort([9201], descendants=True))


def test_a_folder_without_its_files_is_refused(tmp_path: Path) -> None:
    with duckdb.connect() as connection, pytest.raises(SourceError, match="CONCEPT"):
        load_vocabulary(connection, tmp_path, {1: True})
