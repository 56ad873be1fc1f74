"""How a snapshot is taken: read, written beside its place, entered in the hospital's ledger, and put in its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from client_sdk.errors import ConfigurationError, WardroundError
from client_sdk.guard.snapshots import Snapshot, SnapshotLedger, name_is_taken, sizes_of, snapshot_named, snapshots_in
from record_sources.snapshot.record import cohort_json, digests_of
from study_protocol.study.cohort import Cohort
from study_protocol.wire.failpoints import failpoint, register

if TYPE_CHECKING:
    from record_sources.snapshot.preparation import PreparedSnapshot
    from record_sources.source_file.description import SourceDescription
    from record_sources.working.workspace import RowProgress

register("snapshot.after-entry")


@dataclass(frozen=True, repr=False)
class TakenSnapshot:
    """A snapshot that is in its place.

    remarks   sentences with counts, for the person who takes it
    is_new    False: an earlier process wrote its entry, and now its files are in their place
    """

    snapshot: Snapshot
    remarks: tuple[str, ...]
    is_new: bool


def take_snapshot(
    home: Path, source: Path, target: Path, cohort: Cohort | None, person: str, progress: RowProgress
) -> TakenSnapshot:
    """Read the records of a source, and freeze them under the name of the target.

    A name is taken once. Where a snapshot has it, the source is read to say whether it still gives the same records. If
    the snapshot's files are gone and it does, they are put back.

    home    the hospital's directory, whose ledger gets the entry
    source  a source file (`source.toml`)
    target  path of the snapshot. Its name without .parquet is the snapshot's
    cohort  of the study, for sources that make their tables from it
    person  who takes it

    Raises:
        SourceError: the source cannot be read, or the disk is full. No file and no entry is left.
        ConfigurationError: a snapshot of this name is there.
        LedgerInUse, LedgerDamaged, LedgerNotWritten: the entry cannot be written. No file is left.
    """
    from record_sources.snapshot.preparation import prepare, snapshot_name
    from record_sources.source_file.description import read_description

    target = target.expanduser().absolute()
    name, description = snapshot_name(target), read_description(source)
    # Opened for writing: a ledger that cannot be written is known before hours of reading.
    with SnapshotLedger.open_in(home) as ledger:
        earlier = snapshot_named(ledger.snapshots(), name)
    if earlier is not None and finish(earlier):
        return TakenSnapshot(earlier, (), is_new=False)
    query_files = _digests(description)
    place = target if earlier is None or not target.exists() else target.with_name(f"{name}.compared")
    prepared = prepare(description, cohort, place, progress)
    try:
        if earlier is not None:
            return _taken_again(earlier, prepared)
        written = sizes_of(prepared.part.written(name, len(prepared.record.tables) > 1))
        text = "" if cohort is None or prepared.record.cohort_sha256 is None else cohort_json(cohort)
        files = (prepared.target.resolve(), written, source.absolute(), query_files)
        with SnapshotLedger.open_in(home) as ledger:
            snapshot = ledger.record(Snapshot(prepared.record, *files, text, person))
    except BaseException:
        # It may come between the entry and this line. Then the next command puts the files into their place.
        if not _is_recorded(home, prepared):
            prepared.discard()
        raise
    failpoint("snapshot.after-entry")
    prepared.publish()
    return TakenSnapshot(snapshot, prepared.remarks, is_new=True)


def finish(snapshot: Snapshot) -> bool:
    """Put the files of a snapshot into their place, if a process died before it did so. Return whether it had died.

    Raises:
        SourceError: another process takes this snapshot.
    """
    if not (snapshot.path.parent / f".{snapshot.name}.part").is_dir():
        return False
    from record_sources.snapshot.preparation import finish_interrupted

    return finish_interrupted(snapshot.path, snapshot.record)


def _taken_again(earlier: Snapshot, prepared: PreparedSnapshot) -> TakenSnapshot:
    """Return a snapshot whose files were gone and are the same. Raises ConfigurationError: its name is taken."""
    is_same = prepared.record.sha256 == earlier.record.sha256
    if not is_same or prepared.target.resolve() != earlier.path:
        raise ConfigurationError(name_is_taken(earlier, prepared.record))
    prepared.publish()
    return TakenSnapshot(earlier, prepared.remarks, is_new=False)


def _is_recorded(home: Path, prepared: PreparedSnapshot) -> bool:
    try:
        entry = snapshot_named(snapshots_in(home), prepared.record.name)
    # A full disk may have stopped its first entry.
    except WardroundError:
        return False
    return entry is not None and entry.record == prepared.record and entry.path == prepared.target.resolve()


def _digests(description: SourceDescription) -> dict[str, str]:
    """Return the SHA-256 of each file with a query or with a view, by its path."""
    from record_sources.source_file.description import FhirDescription, SqlDescription

    paths: list[Path] = []
    if isinstance(description, SqlDescription):
        paths += description.queries.values()
    elif isinstance(description, FhirDescription) and description.views is not None:
        paths += sorted(description.views.glob("*.json")) if description.views.is_dir() else [description.views]
    return {str(path.absolute()): sha256 for path in paths for sha256 in digests_of(path).values()}
