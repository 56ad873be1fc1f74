"""The source of kind `omop`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from record_sources.cohort import make_tables
from record_sources.errors import SourceError
from record_sources.omop.staging import fill_staging
from record_sources.source_file.description import OmopDescription, SourceDescription
from record_sources.source_file.secrets import open_secrets
from record_sources.sources import Contents
from record_sources.sql.connection import read_only
from record_sources.working.staging import TABLES
from record_sources.working.workspace import RowProgress, Workspace
from study_protocol.study.cohort import PATIENT, PATIENTS, Cohort


@dataclass(frozen=True)
class OmopSource:
    """A cohort of an OMOP database."""

    description: OmopDescription
    cohort: Cohort

    @property
    def place(self) -> str:
        """The database in words."""
        return self.description.place

    @property
    def queries(self) -> Mapping[str, str]:
        """None: the hospital wrote no query."""
        return {}

    @property
    def patient_column(self) -> str:
        """The column with the patient of a row."""
        return PATIENT

    @property
    def several_rows(self) -> bool:
        """Each patient has one row."""
        return False

    def fill(self, workspace: Workspace, progress: RowProgress) -> Contents:
        """Read patients and events in one transaction, and compute the cohort's tables. Raises SourceError."""
        workspace.connection.execute(TABLES)
        with read_only(self.description) as database:
            remarks = fill_staging(database, workspace, self.description, self.cohort, progress)
        # After the connection, as a hospital may limit how long it is open.
        counts = make_tables(workspace.connection, self.cohort)
        return Contents(
            (PATIENTS, *self.cohort.events), (*open_secrets(self.description), *remarks, *counts.in_words())
        )


def omop_source(description: SourceDescription, cohort: Cohort | None) -> OmopSource:
    """Return the source that a description of kind `omop` names.

    Raises:
        SourceError: there is no cohort.
    """
    if not isinstance(description, OmopDescription):
        raise TypeError("a description of kind omop is expected")
    if cohort is None:
        raise SourceError(
            "an OMOP database is read by the section [cohort] of the study's settings. Name a settings file that has "
            "one with --settings"
        )
    return OmopSource(description, cohort)
