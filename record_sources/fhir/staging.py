"""Patients and events of a FHIR export in the staging tables."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from record_sources.cohort.concepts import named_concepts
from record_sources.errors import SourceError
from record_sources.fhir import vocabulary
from record_sources.fhir.elements import Codes, text
from record_sources.fhir.files import UNREAD, ResourceLine, export_files, read_resources, unread_entries
from record_sources.fhir.resources import (
    EVENT_KINDS,
    CodedEvent,
    LeftOutError,
    event_rows,
    medication_codes,
    patient_row,
)
from record_sources.working.arrow import pa
from record_sources.working.workspace import RowProgress, Workspace, no_progress
from study_protocol.study.cohort import Cohort

# Inserting row by row would take most of the time of an export.
_ROWS_AT_ONCE = 20_000
# No concept of OMOP is negative. It stands apart from null, which means that there is no unit.
_UNKNOWN_UNIT = -1
_TABLES = """
CREATE TABLE resource (line BIGINT, kind VARCHAR, id VARCHAR, content BIGINT);
CREATE TABLE medication (line BIGINT, id VARCHAR, codes INTEGER);
CREATE TABLE coded_event (
    line BIGINT, domain VARCHAR, patient VARCHAR, codes INTEGER, medication VARCHAR, day DATE, time TIMESTAMP,
    value DOUBLE, value_codes INTEGER, unit_codes INTEGER
);
"""


def fill_staging(
    workspace: Workspace,
    folder: Path,
    vocabulary_folder: Path,
    cohort: Cohort,
    progress: RowProgress = no_progress,
) -> dict[str, int]:
    """Fill the staging tables from a FHIR export, with the events that the cohort's concepts cover.

    A unit without a standard concept becomes the unit -1, so that its values are never read as those without a unit.

    Args:
        workspace: the working database, with the tables of `record_sources.working.staging`.
        folder: of the export's NDJSON files. The kind of each line is read from its `resourceType`.
        vocabulary_folder: of the vocabulary files from Athena.
        cohort: the section of the settings.
        progress: is called with the resources read so far, and an estimate of all by the size of the files.

    Returns:
        counts of resources and values that are left out, by kind of resource and reason in words.

    Raises:
        SourceError: a file or line cannot be read, a named concept cannot be used, a patient's id occurs twice, or a
            resource is there in several versions.
    """
    files = export_files(folder)
    connection = workspace.connection
    connection.execute(vocabulary.TABLES + _TABLES)
    vocabulary.load_vocabulary(connection, vocabulary_folder, named_concepts(cohort))
    reader = ExportReader(workspace)
    size, done = sum(path.stat().st_size for path in files), 0

    def note_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress(reader.lines, reader.lines * size // max(done, 1), "resources")

    for line in read_resources(files, note_bytes):
        reader.add(line)
    reader.finish()
    _check_patients(connection)
    counts = reader.counts + _drop_copies(connection) + _unmatched(connection)
    vocabulary.resolve_codes(connection)
    connection.execute(_EVENTS, {"unknown_unit": _UNKNOWN_UNIT})
    counts += _without_concept(connection)
    if unread := unread_entries(folder):
        counts["the folder", UNREAD] = unread
    for table in ("resource", "medication", "coded_event", "concept", "maps_to", "coding", "target"):
        connection.execute(f"DROP TABLE {table}")
    return {f"{kind}: {reason}": count for (kind, reason), count in sorted(counts.items())}


class ExportReader:
    """Writes the resources of an export into the working database, with numbers in place of their codes.

    Memory is bounded by the rows of one chunk and by the different codes of the export.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._chunks: dict[str, list[Sequence[Any]]] = defaultdict(list)
        self._numbers: dict[tuple[Codes, bool], int] = {}
        self.lines = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        """(kind of resource, reason) -> how many resources or values are left out."""

    def add(self, line: ResourceLine) -> None:
        """Add one resource, or count why it is left out."""
        self.lines += 1
        counts: Counter[str] = Counter()
        try:
            self._add(line, counts)
        except LeftOutError as reason:
            counts[str(reason)] += 1
        self.counts.update({(line.kind, reason): count for reason, count in counts.items() if count})

    def finish(self) -> None:
        """Write the last chunks, and the codes behind the numbers."""
        for (codes, is_visit), number in self._numbers.items():
            for position, code in enumerate(codes):
                self._append("coding", (number, position, *code, is_visit))
        for table in list(self._chunks):
            self._flush(table)

    def _add(self, line: ResourceLine, counts: Counter[str]) -> None:
        if line.kind == "Patient":
            self._append("person", patient_row(line.resource))
            return
        if line.kind != "Medication" and line.kind not in EVENT_KINDS:
            raise LeftOutError("this kind of resource is not read")
        identifier = text(line.resource, "id")
        if identifier is not None:
            content = int.from_bytes(hashlib.blake2b(line.line, digest_size=8).digest(), "big", signed=True)
            self._append("resource", (self.lines, line.kind, identifier, content))
        if line.kind == "Medication":
            self._append("medication", (self.lines, identifier, self._number(medication_codes(line.resource))))
            return
        for row in event_rows(line.kind, line.resource, counts):
            self._append("coded_event", self._numbered(row))

    def _numbered(self, row: CodedEvent) -> Sequence[Any]:
        answers = (None if codes is None else self._number(codes) for codes in (row.value_codes, row.unit_codes))
        codes = self._number(row.codes, row.domain == "visit")
        return (self.lines, row.domain, row.patient, codes, *row[3:-2], *answers)

    def _number(self, codes: Codes, is_visit: bool = False) -> int:
        return self._numbers.setdefault((codes, is_visit), len(self._numbers))

    def _append(self, table: str, row: Sequence[Any]) -> None:
        rows = self._chunks[table]
        rows.append(row)
        if len(rows) >= _ROWS_AT_ONCE:
            self._flush(table)

    def _flush(self, table: str) -> None:
        names = self._workspace.connection.sql(f"FROM {table}").columns
        columns = zip(*self._chunks.pop(table), strict=True)
        arrays = {name: pa.array(column) for name, column in zip(names, columns, strict=True)}
        self._workspace.insert(table, pa.table(arrays))


_EVENTS = """
INSERT INTO event
WITH single AS (SELECT codes, min(concept) AS concept FROM target GROUP BY codes)
SELECT
    CASE WHEN e.domain <> 'visit' AND t.domain IN ('condition', 'drug', 'measurement', 'observation') THEN t.domain
         ELSE e.domain END,
    e.patient, t.concept, e.day, e.time, e.value,
    CASE WHEN e.value_codes IS NOT NULL THEN coalesce(v.concept, 0) END,
    CASE WHEN e.unit_codes IS NOT NULL THEN coalesce(u.concept, $unknown_unit) END
FROM coded_event e
LEFT JOIN medication m ON m.id = e.medication
JOIN target t ON t.codes = coalesce(m.codes, e.codes)
LEFT JOIN single v ON v.codes = e.value_codes
LEFT JOIN single u ON u.codes = e.unit_codes
WHERE t.concept IN (SELECT concept FROM covered)
"""


def _check_patients(connection: duckdb.DuckDBPyConnection) -> None:
    twice = _rows(connection, "SELECT count(*) FROM (SELECT patient FROM person GROUP BY patient HAVING count(*) > 1)")
    if twice[0][0]:
        raise SourceError(
            f"{twice[0][0]} ids of Patient occur more than once. Export once into an empty folder, so that each "
            "patient is there once."
        )
    if not _rows(connection, "FROM person LIMIT 1"):
        raise SourceError("The export has no Patient. Export Patient with the other kinds of resources.")


def _drop_copies(connection: duckdb.DuckDBPyConnection) -> Counter[tuple[str, str]]:
    """Drop all but the first of equal resources, and refuse several versions of one."""
    connection.execute(
        "CREATE TEMP TABLE repeated AS SELECT kind, id, min(line) AS kept, min(content) < max(content) AS differs "
        "FROM resource GROUP BY kind, id HAVING count(*) > 1"
    )
    versions = _rows(connection, "SELECT kind, count(*) FROM repeated WHERE differs GROUP BY kind ORDER BY kind")
    if versions:
        kinds = ", ".join(f"{count} of {kind}" for kind, count in versions)
        raise SourceError(
            f"Resources are there in several versions: {kinds}. Export once into an empty folder, so that each "
            "resource is there once."
        )
    connection.execute(
        "CREATE TEMP TABLE copy AS SELECT line, kind FROM resource JOIN repeated USING (kind, id) WHERE line > kept"
    )
    connection.execute("DELETE FROM coded_event WHERE line IN (SELECT line FROM copy)")
    connection.execute("DELETE FROM medication WHERE line IN (SELECT line FROM copy)")
    copies = _rows(connection, "SELECT kind, count(*) FROM copy GROUP BY kind")
    connection.execute("DROP TABLE repeated; DROP TABLE copy")
    return Counter({(kind, "copies of a resource, kept once"): count for kind, count in copies})


def _unmatched(connection: duckdb.DuckDBPyConnection) -> Counter[tuple[str, str]]:
    """Drop events of patients that are not there, and count them and the medications that are not there."""
    strays = _rows(
        connection,
        "SELECT domain, count(*) FROM coded_event WHERE patient NOT IN (SELECT patient FROM person) GROUP BY domain",
    )
    connection.execute("DELETE FROM coded_event WHERE patient NOT IN (SELECT patient FROM person)")
    lost = _rows(
        connection,
        "SELECT domain, count(*) FROM coded_event WHERE medication IS NOT NULL "
        "AND medication NOT IN (SELECT id FROM medication WHERE id IS NOT NULL) GROUP BY domain",
    )
    counts = Counter({(domain, "the patient is not in the export"): count for domain, count in strays})
    counts.update({(domain, "the medication is not in the export, so no concept"): count for domain, count in lost})
    return counts


def _without_concept(connection: duckdb.DuckDBPyConnection) -> Counter[tuple[str, str]]:
    events = _rows(
        connection,
        "SELECT e.domain, count(*) FROM coded_event e LEFT JOIN medication m ON m.id = e.medication "
        "WHERE coalesce(m.codes, e.codes) NOT IN (SELECT codes FROM target) GROUP BY e.domain",
    )
    units = _rows(connection, "SELECT domain, count(*) FROM event WHERE unit < 0 GROUP BY domain")
    counts = Counter({(domain, "no standard concept for the code"): count for domain, count in events})
    counts.update({(domain, "no standard concept for the unit of the value"): count for domain, count in units})
    return counts


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()
