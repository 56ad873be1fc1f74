"""Records that are named by a snapshot: where they are, whether they are as they were frozen, and who uses them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_views import RecordsOrigin
from client_sdk.guard.snapshots import LEDGER_FILE, Snapshot, snapshot_named, snapshots_in
from client_sdk.study.snapshot_taking import finish
from record_sources.snapshot.record import digests_of


@dataclass(frozen=True, repr=False)
class FoundRecords:
    """Where records are read from.

    patient_column  of their table. None: every row is a patient of its own
    snapshot        that they are, already verified. None: they are none
    """

    path: Path
    patient_column: str | None
    snapshot: Snapshot | None = None

    def origin(self, mapping_sha256: str = "") -> RecordsOrigin:
        """Return how the records are made. The argument is the digest of the mapping that is applied to them."""
        if self.snapshot is None:
            return RecordsOrigin(mapping_sha256=mapping_sha256)
        record = self.snapshot.record
        return RecordsOrigin(record.name, record.sha256, record.query_sha256, mapping_sha256)


def find_records(home: Path, place: Path, patient_column: str | None = None) -> FoundRecords:
    """Return the records of a path, or of the name of a snapshot. Files of a snapshot are held against its entry.

    home            the hospital's directory
    place           a path, or a snapshot's name without a folder
    patient_column  as a person names it. None: as the snapshot names it

    Raises:
        ConfigurationError: a name is one of a snapshot and of another file, or of neither, or the column is not the
            snapshot's.
        RecordsChanged: a file is not as the snapshot left it.
        LedgerDamaged, LedgerNotWritten: the ledger of snapshots cannot be read, or has lost the snapshot.
    """
    snapshots = snapshots_in(home)
    snapshot = _by_path(snapshots, place) or _by_name(snapshots, place)
    if snapshot is None:
        if lost := lost_in_words(home, snapshots, place.name):
            raise LedgerDamaged(lost)
        # A name without an ending is more often one of a snapshot than of a file.
        if str(place) == place.stem and not place.exists():
            raise ConfigurationError(_unknown_name(place.stem, home, snapshots))
        return FoundRecords(place, patient_column)
    column = snapshot.record.patient_column
    if patient_column not in (None, column):
        raise ConfigurationError(
            f"--patient-column {patient_column}: snapshot {snapshot.name} names its patients in column {column}. Leave "
            "the option out"
        )
    finish(snapshot)
    snapshot.require_unchanged()
    return FoundRecords(snapshot.path if str(place) == snapshot.name else place, column, snapshot)


def _unknown_name(name: str, home: Path, snapshots: Sequence[Snapshot]) -> str:
    known = ", ".join(snapshot.name for snapshot in snapshots) or "none"
    return (
        f"{name}: there is no such file or folder in {Path.cwd()}, and no such snapshot in the hospital's directory "
        f"{home.absolute()} (its snapshots: {known}). Name another directory with --home or WARDROUND_CLIENT_HOME"
    )


def older_than_query(snapshot: Snapshot) -> str:
    """Return one sentence if a query has changed on the disk since the snapshot was taken. Empty: none has.

    A query file that is gone is no change: the hospital's ledger holds its text.
    """
    known_files = {Path(file): sha256 for file, sha256 in snapshot.query_files.items()}
    changed = [file.name for file, sha256 in known_files.items() if {sha256} != {*digests_of(file).values(), sha256}]
    if not changed:
        return ""
    return (
        f"snapshot {snapshot.name} is older than its query: {', '.join(changed)} has changed since {snapshot.at[:10]}. "
        "The snapshot keeps the records of the earlier one. To use the new one, take a snapshot under another name"
    )


def studies_by_snapshot(home: Path) -> dict[str, list[str]]:
    """Return the studies that have used each snapshot, by its name, from all ledgers of the hospital.

    Raises:
        LedgerDamaged, LedgerNotWritten: a ledger cannot be read.
    """
    studies: defaultdict[str, set[str]] = defaultdict(set)
    for path in (home / "ledgers").glob("*.db"):
        with HospitalLedger.open(path, read_only=True) as ledger:
            for entry in ledger.entries:
                if origin := entry.body.get("origin"):
                    studies[origin["snapshot"]].add(entry.body["joined"])
    return {name: sorted(used_by) for name, used_by in studies.items() if name}


def lost_in_words(home: Path, snapshots: Sequence[Snapshot], file: str | None = None) -> str:
    """Return one sentence if the ledger of snapshots has lost some that studies used. Empty: it has lost none.

    file  only the snapshot that this name belongs to, with or without .parquet

    Raises:
        LedgerDamaged, LedgerNotWritten: a ledger cannot be read.
    """
    names = studies_by_snapshot(home).keys() - {snapshot.name for snapshot in snapshots}
    if file is not None:
        names &= {file, file.removesuffix(".parquet")}
    if not names:
        return ""
    return (
        f"studies have used {', '.join(sorted(names))}, and the hospital's ledger of snapshots has no such entry: "
        f"restore {home / LEDGER_FILE} from a backup"
    )


def _by_path(snapshots: list[Snapshot], path: Path) -> Snapshot | None:
    """Return the snapshot that the path is, or that has it as one of its files."""
    if not path.exists():
        return None
    whole = path.resolve()
    return next((each for each in snapshots if each.path in (whole, whole.parent)), None)


def _by_name(snapshots: list[Snapshot], place: Path) -> Snapshot | None:
    """Return the snapshot of this name. Raises ConfigurationError: another file has the name, too."""
    snapshot = snapshot_named(snapshots, str(place))
    if snapshot is not None and place.exists():
        raise ConfigurationError(
            f"{place} is a snapshot ({snapshot.path}), and also another file or folder here: name the snapshot by its "
            f"path, or the other one by its whole path ({place.absolute()})"
        )
    return snapshot
