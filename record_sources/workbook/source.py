"""The source of kind `workbook`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from record_sources.source_file.description import RECORDS, SourceDescription, WorkbookDescription
from record_sources.sources import Contents
from record_sources.workbook.sheet import read_sheet
from record_sources.working.workspace import RowProgress, Workspace
from study_protocol.study.cohort import Cohort


@dataclass(frozen=True)
class WorkbookSource:
    """The sheet that a description names."""

    description: WorkbookDescription

    @property
    def place(self) -> str:
        """The sheet in words."""
        return f"{self.description.file.name}, sheet {self.description.sheet}"

    @property
    def queries(self) -> Mapping[str, str]:
        """No query: the sheet is read whole."""
        return {}

    @property
    def patient_column(self) -> str:
        """The column with the patient of a row."""
        return self.description.patient_column

    @property
    def several_rows(self) -> bool:
        """Whether a patient may have several rows."""
        return self.description.several_rows

    def fill(self, workspace: Workspace, progress: RowProgress) -> Contents:
        """Read the sheet into the table `records`. Raises SourceError, as `read_sheet`."""
        sheet = read_sheet(self.description.file, self.description.sheet, self.description.header_row)
        # The sheet is checked as a whole before its first row is taken.
        rows = sheet.rows()
        workspace.fill(RECORDS, sheet.columns, rows, progress, patient=self.patient_column, expected=sheet.count)
        return Contents((RECORDS,))


def workbook_source(description: SourceDescription, cohort: Cohort | None) -> WorkbookSource:
    """Return the source of a description of kind workbook. The cohort is not used."""
    if not isinstance(description, WorkbookDescription):
        raise TypeError("a description of kind workbook is expected")
    return WorkbookSource(description)
