"""Snapshots: the rows of a source, frozen as Parquet files with a digest. They are there whole, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from record_sources.errors import SourceError
from record_sources.snapshot.parquet import write_sorted
from record_sources.snapshot.part_folder import PartFolder
from record_sources.snapshot.record import QueryRecord, SnapshotRecord, TableRecord, cohort_json, digests_of
from record_sources.source_file.description import SourceDescription
from record_sources.sources import RecordSource, source_of
from record_sources.working.workspace import RowProgress, Workspace, no_progress, quoted
from study_protocol.files.durable import sync_directory, sync_file
from study_protocol.files.names import is_device
from study_protocol.study.cohort import PATIENTS, Cohort
from study_protocol.wire.failpoints import failpoint, register
from study_protocol.wire.signing import canonical_json

register("snapshot.after-fill", "snapshot.after-write", "snapshot.after-rename")
# A name is part of paths and of commands, on all systems.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SUFFIX = ".parquet"
# A file with such an ending would be read in that format later.
_OTHER_FORMATS = {".csv", ".tsv", ".txt", ".xlsx", ".xls", ".ods", ".arrow", ".feather", ".json", ".db"}
# DuckDB reports a commit that could not be written as one of a transaction, and then every later one as fatal.
_OF_THE_DISK = (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.TransactionException, duckdb.FatalException)


@dataclass(frozen=True)
class PreparedSnapshot:
    """A snapshot that is written and has no name yet. `publish` or `discard` ends it.

    Attributes:
        record: for the ledger.
        remarks: sentences with counts, for the person who takes the snapshot.
    """

    record: SnapshotRecord
    remarks: tuple[str, ...]
    part: PartFolder

    @property
    def target(self) -> Path:
        """The place where the snapshot will be: a file, or a folder of tables."""
        return self.part.target(_is_folder(self.record))

    def publish(self) -> Path:
        """Give the snapshot its name, durably, and return its path.

        Raises:
            SourceError: a file or folder with this name exists.
        """
        with _in_words():
            self.part.publish(self.target)
            failpoint("snapshot.after-rename")
            self.part.remove()
        return self.target

    def discard(self) -> None:
        """Remove what was written."""
        self.part.remove()


def snapshot_name(target: Path) -> str:
    """Return the name of the snapshot with this path, which is without the suffix .parquet. Raises SourceError."""
    name = target.name.removesuffix(_SUFFIX)
    if not _NAME.fullmatch(name):
        raise SourceError("a snapshot's name has at most 100 letters a to z, digits, dots, hyphens and underscores")
    if is_device(name) or name.endswith("."):
        raise SourceError("a snapshot's name is no name of a device of Windows, such as nul, and ends with no dot")
    if (ending := target.suffix.lower()) in _OTHER_FORMATS:
        raise SourceError(f"a snapshot is a Parquet file: end its path with {_SUFFIX} in place of {ending}")
    return name


def prepare(
    description: SourceDescription, cohort: Cohort | None, target: Path, progress: RowProgress = no_progress
) -> PreparedSnapshot:
    """Read a source into files beside the target that have no name yet.

    Whatever ends it, nothing is left. Only a killed process leaves its folder, which the next snapshot of this name
    removes.

    Args:
        cohort: of the study, for sources that make their tables from it.
        target: path of the snapshot, with or without .parquet.

    Raises:
        SourceError: the target exists, another process takes it, the source cannot be read, or the disk is full.
    """
    name = snapshot_name(target)
    source = source_of(description, cohort)
    with _in_words():
        part = PartFolder.take(target.parent, name)
        try:
            with Workspace(part.path) as workspace:
                contents = source.fill(workspace, progress)
                failpoint("snapshot.after-fill")
                tables = _table_records(workspace, source, contents.tables)
                files = _write(workspace, part, source.patient_column, tables)
            record = _record(name, description.kind, source, cohort, tables, files)
            failpoint("snapshot.after-write")
            return PreparedSnapshot(record, contents.remarks, part)
        # Also where a person stops it: what is half written is of patients.
        except BaseException:
            part.remove()
            raise


def finish_interrupted(target: Path, record: SnapshotRecord) -> bool:
    """Give a snapshot its name whose process died between the entry in the ledger and the rename.

    Return whether its files were there, whole and unchanged.

    Raises:
        SourceError: another process takes this snapshot.
    """
    with _in_words():
        part = PartFolder.reopen(target.parent, record.name)
        if part is None:
            return False
        whole = part.target(_is_folder(record))
        try:
            if whole.exists():
                complete = digests_of(whole) == record.files
            elif complete := digests_of(part.written(record.name, _is_folder(record))) == record.files:
                part.publish(whole)
            if complete:
                part.remove()
            return complete
        finally:
            part.close()


def _is_folder(record: SnapshotRecord) -> bool:
    return len(record.tables) > 1


def _table_records(workspace: Workspace, source: RecordSource, tables: tuple[str, ...]) -> dict[str, TableRecord]:
    """Return counts of the tables. Raises SourceError: one has no rows, or several of a patient."""
    counts = dict[str, TableRecord]()
    for table in tables:
        columns = tuple(workspace.types(table))
        rows, patients = workspace.connection.execute(
            f"SELECT count(*), count(DISTINCT {quoted(source.patient_column)}) FROM {quoted(table)}"  # noqa: S608
        ).fetchall()[0]
        counts[table] = TableRecord(rows=rows, patients=patients, columns=columns)
        is_only = len(tables) == 1
        if is_only or table == PATIENTS:
            _require_patients(table, counts[table], is_only=is_only, several_rows=is_only and source.several_rows)
    return counts


def _require_patients(table: str, counts: TableRecord, *, is_only: bool, several_rows: bool) -> None:
    if not counts.rows:
        raise SourceError(
            f"table {table}: the source gives no rows. Check its conditions, and which rows this user may read"
        )
    if (repeated := counts.rows - counts.patients) and not several_rows:
        remedy = "set several_rows = true" if is_only else "move what happened several times to a table of events"
        raise SourceError(
            f"table {table}: {repeated} of {counts.rows} rows are of a patient who has another row. Make one row of "
            f"each patient in the query, or {remedy}"
        )


def _write(
    workspace: Workspace, part: PartFolder, patient_column: str, tables: dict[str, TableRecord]
) -> dict[str, str]:
    folder = part.folder(is_folder=len(tables) > 1)
    for table, counts in tables.items():
        path = folder / f"{part.name if len(tables) == 1 else table}{_SUFFIX}"
        write_sorted(workspace, table, patient_column, path, one_row_each=counts.rows == counts.patients)
        sync_file(path)
    sync_directory(folder)
    return digests_of(folder)


def _record(
    name: str,
    kind: str,
    source: RecordSource,
    cohort: Cohort | None,
    tables: dict[str, TableRecord],
    files: dict[str, str],
) -> SnapshotRecord:
    of_cohort = cohort if not source.queries else None
    return SnapshotRecord(
        name=name,
        kind=kind,
        place=source.place,
        queries={
            table: QueryRecord(text=text, sha256=_digest(text.encode())) for table, text in source.queries.items()
        },
        cohort_sha256=None if of_cohort is None else _digest(cohort_json(of_cohort).encode()),
        patient_column=source.patient_column,
        tables=tables,
        files=files,
        sha256=next(iter(files.values())) if len(files) == 1 else _digest(canonical_json(files)),
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _in_words() -> Generator[None]:
    """Turn a full disk into one sentence."""
    try:
        yield
    except OSError as error:
        raise SourceError(_disk_words(error.errno, error.strerror or "")) from None
    except _OF_THE_DISK as error:
        full = "space" in str(error).lower() or isinstance(error, duckdb.OutOfMemoryException)
        raise SourceError(_disk_words(errno.ENOSPC if full else errno.EIO, os.strerror(errno.EIO))) from None


def _disk_words(number: int | None, description: str) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "the disk of the snapshot is full. Nothing was left there: free some space, and take it again"
    return f"the snapshot cannot be written: {description.lower()}. Nothing was left there"
