"""Kinds of sources: where the code of each one is, loaded when it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from record_sources.errors import SourceError
from record_sources.source_file.description import SourceDescription
from record_sources.working.workspace import RowProgress, Workspace
from study_protocol.study.cohort import Cohort


@dataclass(frozen=True)
class Contents:
    """The tables that a source has put into the workspace.

    Attributes:
        tables: those to be written, each with a patient's column. A single one, or `patients` and tables of events.
        remarks: sentences with counts, for the person who takes the snapshot.
    """

    tables: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class RecordSource(Protocol):
    """One source of records."""

    @property
    def place(self) -> str:
        """The place of the records, in words, without a password."""
        ...

    @property
    def queries(self) -> Mapping[str, str]:
        """The text of the query of each table, where a hospital wrote one."""
        ...

    @property
    def patient_column(self) -> str: ...

    @property
    def several_rows(self) -> bool:
        """Whether a table may have several rows of a patient. Tables of events always may."""
        ...

    def fill(self, workspace: Workspace, progress: RowProgress) -> Contents:
        """Read all records into tables of the workspace. Raises SourceError."""
        ...


SOURCES = {
    "sql": "record_sources.sql:sql_source",
    "omop": "record_sources.omop:omop_source",
    "fhir": "record_sources.fhir:fhir_source",
    "workbook": "record_sources.workbook:workbook_source",
}
"""Kind -> module and function. The function takes the description and the study's cohort or None."""


def source_of(description: SourceDescription, cohort: Cohort | None) -> RecordSource:
    """Return the source that a description names.

    Raises:
        SourceError: it cannot be opened, lacks the cohort that it needs, or a package is not installed.
    """
    module, _, function = SOURCES[description.kind].partition(":")
    try:
        return cast("Any", importlib.import_module(module)).__dict__[function](description, cohort)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise SourceError(f"sources need the package {package}: pip install 'wardround[sources]'") from error
