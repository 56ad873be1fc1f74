"""FHIR exports and vocabulary files in temporary folders, and what staging makes of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from record_sources.fhir.staging import fill_staging
from record_sources.working.staging import TABLES
from record_sources.working.workspace import Workspace
from study_protocol.study.cohort import Cohort

LOINC, SNOMED, UCUM = "http://loinc.org", "http://snomed.info/sct", "http://unitsofmeasure.org"
ICD10CM, RXNORM = "http://hl7.org/fhir/sid/icd-10-cm", "http://www.nlm.nih.gov/research/umls/rxnorm"
ACT_CODE = "http://terminology.hl7.org/CodeSystem/v3-ActCode"

CONCEPTS = [
    # id, domain, vocabulary, standard, code, invalid_reason
    (9201, "Visit", "Visit", "S", "IP", ""),
    (9202, "Visit", "Visit", "S", "OP", ""),
    (9203, "Visit", "Visit", "S", "ER", ""),
    (32037, "Visit", "Visit", "S", "OMOP4822460", ""),
    (201820, "Condition", "SNOMED", "S", "73211009", ""),
    (201826, "Condition", "SNOMED", "S", "44054006", ""),
    (443238, "Condition", "SNOMED", "S", "443238", ""),
    (4000000, "Observation", "SNOMED", "S", "400", ""),
    (35206882, "Condition", "ICD10CM", "", "E11.9", ""),
    (45000001, "Condition", "ICD10CM", "", "E11.311", ""),
    (45000002, "Condition", "ICD10CM", "", "Z99", ""),
    (1503297, "Drug", "RxNorm", "S", "6809", ""),
    (44900001, "Drug", "NDC", "", "00777310502", ""),
    (3004501, "Measurement", "LOINC", "S", "2345-7", ""),
    (3004249, "Measurement", "LOINC", "S", "8480-6", ""),
    (3012888, "Measurement", "LOINC", "S", "8462-4", ""),
    (36203185, "Measurement", "LOINC", "S", "85354-9", ""),
    (3000001, "Measurement", "LOINC", "", "1-1", "U"),
    (3000002, "Measurement", "LOINC", "S", "1-1", ""),
    (40000001, "Observation", "LOINC", "S", "72166-2", ""),
    (8840, "Unit", "UCUM", "S", "mg/dL", ""),
    (8753, "Unit", "UCUM", "S", "mmol/L", ""),
    (4188539, "Meas Value", "SNOMED", "S", "373066001", ""),
    (4188540, "Meas Value", "SNOMED", "S", "373067005", ""),
    (45884084, "Meas Value", "LOINC", "S", "LA6576-8", ""),
    (21600712, "Drug", "ATC", "C", "A10", ""),
    (999, "Condition", "SNOMED", "", "999", "D"),
]
MAPS = [
    # source, target, relationship_id, invalid_reason
    (35206882, 201826, "Maps to", ""),
    (45000001, 201826, "Maps to", ""),
    (45000001, 443238, "Maps to", ""),
    (45000002, 4000000, "Maps to", ""),
    (45000002, 201820, "Maps to", "D"),
    (44900001, 1503297, "Maps to", ""),
    (3000001, 3000002, "Maps to", ""),
    (201826, 201826, "Maps to", ""),
    (201826, 35206882, "Mapped from", ""),
]
ANCESTORS = [(201820, 201820), (201820, 201826), (201820, 443238), (201826, 201826), (9201, 9201), (9201, 32037)]
EVERY_CONCEPT = sorted({concept[0] for concept in CONCEPTS if concept[3] == "S" and concept[1] != "Unit"})


def write_vocabulary(
    folder: Path,
    concepts: Iterable[tuple[Any, ...]] = CONCEPTS,
    maps: Iterable[tuple[Any, ...]] | None = MAPS,
    ancestors: Iterable[tuple[Any, ...]] = ANCESTORS,
) -> Path:
    """Write files as Athena does, and return their folder. Names hold quotation marks, which are no quoting there."""
    folder.mkdir(parents=True, exist_ok=True)
    header = "concept_id concept_name domain_id vocabulary_id concept_class_id standard_concept concept_code"
    _table(
        folder / "CONCEPT.csv",
        f"{header} valid_start_date valid_end_date invalid_reason",
        (
            (number, f'A "name, {number}', domain, vocabulary, "Class", standard, code, "19700101", "20991231", invalid)
            for number, domain, vocabulary, standard, code, invalid in concepts
        ),
    )
    _table(
        folder / "CONCEPT_ANCESTOR.csv",
        "ancestor_concept_id descendant_concept_id min_levels_of_separation max_levels_of_separation",
        ((ancestor, descendant, 0, 1) for ancestor, descendant in ancestors),
    )
    if maps is not None:
        _table(
            folder / "CONCEPT_RELATIONSHIP.csv",
            "concept_id_1 concept_id_2 relationship_id valid_start_date valid_end_date invalid_reason",
            ((source, target, kind, "19700101", "20991231", invalid) for source, target, kind, invalid in maps),
        )
    return folder


def _table(path: Path, header: str, rows: Iterable[tuple[Any, ...]]) -> None:
    lines = ["\t".join(header.split()), *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_export(folder: Path, files: Mapping[str, Iterable[Mapping[str, Any] | str]]) -> Path:
    """Write resources, or lines as they are, into files, and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        content = text.encode("utf-8", "surrogatepass")
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def cohort(concepts: Iterable[int] = EVERY_CONCEPT, *, descendants: bool = False, **entries: Any) -> Cohort:
    """Return a cohort that names these concepts."""
    return Cohort.model_validate(
        {
            "index_event": {"of": "visit", "concepts": list(concepts), "descendants": descendants},
            "columns": {"sex": {"of": "sex", "values": {"8507": "male", "8532": "female"}}},
            **entries,
        }
    )


class Staged:
    """Staging tables of an export: sorted rows, and the counts of what was left out."""

    def __init__(self, export: Path, vocabulary: Path, work: Path, settings: Cohort | None = None) -> None:
        work.mkdir(exist_ok=True)
        with Workspace(work) as workspace:
            workspace.connection.execute(TABLES)
            self.counts = fill_staging(workspace, export, vocabulary, settings or cohort())
            self.persons, self.events, self.covered = (
                sorted(workspace.connection.execute(f"FROM {table}").fetchall(), key=repr)
                for table in ("person", "event", "covered")
            )


def patient(identifier: str, **elements: Any) -> dict[str, Any]:
    """Return a Patient resource."""
    return {"resourceType": "Patient", "id": identifier, **elements}


def coded(system: str, code: str) -> dict[str, Any]:
    """Return a CodeableConcept with one coding."""
    return {"coding": [{"system": system, "code": code}]}


def resource(kind: str, identifier: str, who: str = "a", **elements: Any) -> dict[str, Any]:
    """Return a resource about a patient."""
    return {"resourceType": kind, "id": identifier, "subject": {"reference": f"Patient/{who}"}, **elements}


def observation(identifier: str, code: str, who: str = "a", **elements: Any) -> dict[str, Any]:
    """Return an Observation with a LOINC code on a fixed day."""
    return resource(
        "Observation",
        identifier,
        who,
        **{"status": "final", "code": coded(LOINC, code), "effectiveDateTime": "2020-01-02", **elements},
    )
