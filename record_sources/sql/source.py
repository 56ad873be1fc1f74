"""The source of kind `sql`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from record_sources.errors import SourceError
from record_sources.source_file.addresses import parsed
from record_sources.source_file.description import SourceDescription, SqlDescription
from record_sources.source_file.secrets import open_secrets
from record_sources.sources import Contents
from record_sources.sql.connection import read_only
from record_sources.sql.query_file import read_query
from record_sources.working.workspace import RowProgress, Workspace
from study_protocol.study.cohort import Cohort


@dataclass(frozen=True)
class SqlSource:
    """Queries of a hospital on its database. queries: table -> text."""

    description: SqlDescription
    queries: Mapping[str, str]

    @property
    def place(self) -> str:
        """The database in words."""
        return self.description.place

    @property
    def patient_column(self) -> str:
        """The column with the patient of a row."""
        return self.description.patient_column

    @property
    def several_rows(self) -> bool:
        """Whether a single table may have several rows of a patient."""
        return self.description.several_rows

    def fill(self, workspace: Workspace, progress: RowProgress) -> Contents:
        """Read all queries in one transaction. Raises SourceError, which names the table."""
        with read_only(self.description) as database:
            for table, text in self.queries.items():
                try:
                    expected = database.expected_rows(text)
                    with database.query(text) as query:
                        workspace.fill(
                            table,
                            query.columns,
                            query.rows,
                            progress,
                            patient=self.patient_column,
                            expected=expected,
                        )
                except SourceError as error:
                    text = str(error)
                    raise error if text.startswith("table ") else SourceError(f"table {table}: {text}") from None
        return Contents(tuple(self.queries), open_secrets(self.description))


def sql_source(description: SourceDescription, cohort: Cohort | None) -> SqlSource:
    """Return the source that a description of kind `sql` names. The cohort is not used.

    Raises:
        SourceError: a query file holds no query.
    """
    if not isinstance(description, SqlDescription):
        raise TypeError("a description of kind sql is expected")
    kind = parsed(description.url).get_backend_name()
    return SqlSource(description, {table: read_query(path, kind) for table, path in description.queries.items()})
