"""The source of a cohort from FHIR files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from record_sources.cohort import make_tables
from record_sources.fhir.staging import fill_staging
from record_sources.sources import Contents
from record_sources.working.staging import TABLES
from record_sources.working.workspace import RowProgress, Workspace
from study_protocol.study.cohort import PATIENT, PATIENTS, Cohort


@dataclass(frozen=True)
class CohortSource:
    """The patients of a cohort and their events, from a folder of NDJSON files and one of vocabulary files."""

    folder: Path
    vocabulary: Path
    cohort: Cohort
    patient_column: str = PATIENT
    several_rows: bool = False

    @property
    def place(self) -> str:
        """The folder in words."""
        return f"FHIR files in {self.folder.resolve()}"

    @property
    def queries(self) -> Mapping[str, str]:
        """No query: the cohort says what is read."""
        return {}

    def fill(self, workspace: Workspace, progress: RowProgress) -> Contents:
        """Read the export and make the cohort's tables. Raises SourceError."""
        workspace.connection.execute(TABLES)
        left_out = fill_staging(workspace, self.folder, self.vocabulary, self.cohort, progress)
        counts = make_tables(workspace.connection, self.cohort)
        remarks = [f"{count:,} of {reason}" for reason, count in left_out.items()]
        return Contents((PATIENTS, *self.cohort.events), (*remarks, *counts.in_words()))
