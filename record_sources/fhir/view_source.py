"""The source of tables that ViewDefinitions make of FHIR files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from record_sources.errors import SourceError
from record_sources.fhir.files import UNREAD, export_files, unread_entries
from record_sources.fhir.view_definitions import read_definitions
from record_sources.fhir.views import FhirView, Row, prepare_view, view_rows
from record_sources.source_file.description import FhirDescription
from record_sources.sources import Contents
from record_sources.working.arrow import pa
from record_sources.working.workspace import RowProgress, Workspace
from study_protocol.study.cohort import PATIENTS

_IDS_AT_ONCE = 20_000
_IDS = "ids of resources"


@dataclass(frozen=True)
class ViewsSource:
    """Views over a folder of NDJSON files. queries: table -> text of its ViewDefinition."""

    folder: Path
    views: tuple[FhirView, ...]
    queries: Mapping[str, str]
    patient_column: str
    several_rows: bool

    @property
    def place(self) -> str:
        """The folder in words."""
        return f"FHIR files in {self.folder.resolve()}"

    def fill(self, workspace: Workspace, progress: RowProgress) -> Contents:
        """Read the export once for each view. Raises SourceError, also for a resource that is there twice."""
        files = export_files(self.folder)
        for view in self.views:
            workspace.connection.execute(f'CREATE OR REPLACE TABLE "{_IDS}" (id VARCHAR)')
            rows = self._rows(view, files, workspace)
            workspace.fill(view.name, view.columns, rows, progress, patient=self.patient_column)
            _require_once(workspace, view)
        workspace.connection.execute(f'DROP TABLE "{_IDS}"')
        unread = unread_entries(self.folder)
        remarks = (f"{unread:,} of the folder: {UNREAD}",) if unread else ()
        return Contents(tuple(view.name for view in self.views), remarks)

    def _rows(self, view: FhirView, files: list[Path], workspace: Workspace) -> Iterator[Row]:
        """Yield the rows of a view, and keep the ids of its resources."""
        ids: list[str] = []
        for identifier, rows in view_rows(view, files):
            if identifier is not None:
                ids.append(identifier)
            yield from rows
            if len(ids) == _IDS_AT_ONCE:
                workspace.insert(_IDS, pa.table({"id": ids}))
                ids.clear()
        workspace.insert(_IDS, pa.table({"id": pa.array(ids, pa.string())}))


def views_source(description: FhirDescription, views: Path) -> ViewsSource:
    """Return the source of a description that names views.

    Raises:
        SourceError: a view cannot be used. Or there are several views, and none has the name `patients`.
    """
    prepared: list[FhirView] = []
    queries: dict[str, str] = {}
    for definition, text in read_definitions(views):
        try:
            view = prepare_view(definition)
        except SourceError as error:
            raise SourceError(f"view {definition.name}: {error}") from None
        prepared.append(view)
        queries[view.name] = text
    if len(prepared) > 1 and PATIENTS not in queries:
        raise SourceError(
            f"{views.name} has {len(prepared)} views. Give the one with a row for each patient the name `{PATIENTS}`, "
            "or set views to the file of one view"
        )
    return ViewsSource(
        description.folder, tuple(prepared), queries, description.patient_column, description.several_rows
    )


def _require_once(workspace: Workspace, view: FhirView) -> None:
    repeated = f'SELECT count(*) FROM (SELECT id FROM "{_IDS}" GROUP BY id HAVING count(*) > 1)'  # noqa: S608
    count = workspace.connection.execute(repeated).fetchall()[0][0]
    if count:
        raise SourceError(
            f"{count} ids of {view.resource} occur more than once. Export once into an empty folder, so that each "
            "resource is there once"
        )
