"""The ledger of a hospital's snapshots: what was frozen, when, by whom, from which source and with which query.

It is one file for the hospital, beside the ledgers of its data sets. So a snapshot can be taken while a study runs. It
never leaves the hospital.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from client_sdk.errors import ConfigurationError, RecordsChanged
from client_sdk.guard.ledger_chain import DECLARED, LedgerChain
from record_sources.snapshot.record import SnapshotRecord, digests_of

LEDGER_FILE = "snapshots.db"
# Stands where a study's name does in the ledger of a data set.
_SNAPSHOT = "/snapshot"
_MISSING = "missing"


@dataclass(frozen=True, repr=False)
class Snapshot:
    """One entry: records that were frozen.

    record       name, source, queries, tables, and the SHA-256 of each file by its name
    path         absolute path of the file, or of the folder of files
    sizes        of each file in bytes, by its name
    description  absolute path of the source file (`source.toml`)
    query_files  SHA-256 of each file of a query when it was read, by its absolute path
    cohort       JSON of the study's section `cohort`, from which the tables were made. Empty: they were not
    person       who took it
    at           time of the entry, UTC in ISO 8601. Empty: not written yet
    """

    record: SnapshotRecord
    path: Path
    sizes: Mapping[str, int]
    description: Path
    query_files: Mapping[str, str]
    cohort: str
    person: str
    at: str = ""

    @property
    def name(self) -> str:
        return self.record.name

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Self:
        """Return the snapshot of an entry."""
        record, path, description = SnapshotRecord.model_validate(body["record"]), body["path"], body["description"]
        files = (body["sizes"], Path(description), body["query_files"], body["cohort"])
        return cls(record, Path(path), *files, body["person"], body["at"])

    def to_dict(self) -> dict[str, Any]:
        """Return the body of its entry."""
        return {
            "record": self.record.model_dump(mode="json"),
            "path": str(self.path),
            "sizes": dict(self.sizes),
            "description": str(self.description),
            "query_files": dict(self.query_files),
            "cohort": self.cohort,
            "person": self.person,
            "at": self.at,
        }

    def state(self) -> Literal["there", "missing", "changed size"]:
        """Return the state of the files by their names and sizes."""
        sizes = sizes_of(self.path)
        if not self.sizes.keys() <= sizes.keys():
            return _MISSING
        return "there" if sizes == self.sizes else "changed size"

    def require_unchanged(self) -> None:
        """Compare every file with the entry.

        Raises:
            RecordsChanged: a file is missing, is another one, or was added. The message has both digests.
            OSError: a file cannot be read.
        """
        of_snapshot, digests = f"snapshot {self.name} of {self.at[:10]}", digests_of(self.path)
        for file, sha256 in self.record.files.items():
            if digests.get(file) != sha256:
                found_in_words = f"its SHA-256 is {digests[file]}" if file in digests else f"the file is {_MISSING}"
                raise RecordsChanged(
                    f"{self.path}: {file} is not as {of_snapshot} left it: {found_in_words}, and the hospital's ledger "
                    f"names {sha256}. Restore it from a backup, or take a new snapshot under another name"
                )
        if added := len(digests.keys() - self.record.files.keys()):
            raise RecordsChanged(f"{self.path} holds {added} files that {of_snapshot} does not have: move them away")


class SnapshotLedger(LedgerChain):
    """The snapshots of a hospital. It is opened for one entry at a time."""

    @classmethod
    def open_in(cls, home: Path) -> Self:
        """Return the ledger in the hospital's directory, a new one if there is none. Raises as `wait_for`."""
        return cls.wait_for(home / LEDGER_FILE)

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots, the oldest first."""
        return [Snapshot.from_dict(entry.body) for entry in self._of(_SNAPSHOT)]

    def record(self, snapshot: Snapshot) -> Snapshot:
        """Write the entry of a snapshot, and return it with its time. It is durable when this returns.

        Raises:
            ConfigurationError: a snapshot of this name is there. Snapshots are frozen.
            LedgerNotWritten: the ledger is unchanged.
        """
        if (earlier := snapshot_named(self.snapshots(), snapshot.name)) is not None:
            raise ConfigurationError(name_is_taken(earlier, snapshot.record))
        written = replace(snapshot, at=self._moment())
        with self._writing():
            self._append(DECLARED, _SNAPSHOT, None, written.to_dict())
        return written


def snapshots_in(home: Path) -> list[Snapshot]:
    """Return the snapshots of a hospital, the oldest first, also while another process writes.

    Raises:
        LedgerDamaged: not a ledger, or its chain is broken.
        LedgerNotWritten: the file cannot be read.
    """
    if not (home / LEDGER_FILE).exists():
        return []
    with SnapshotLedger.open(home / LEDGER_FILE, read_only=True) as ledger:
        return ledger.snapshots()


def snapshot_named(snapshots: Iterable[Snapshot], name: str) -> Snapshot | None:
    """Return the snapshot of this name, or None."""
    return next((snapshot for snapshot in snapshots if snapshot.name == name), None)


def name_is_taken(earlier: Snapshot, record: SnapshotRecord) -> str:
    """Return the message that another snapshot has the name, and whether the source still gives the same records."""
    reason = f"{earlier.name} is a snapshot of {earlier.at[:10]} ({earlier.path}), and snapshots are frozen"
    if record.sha256 != earlier.record.sha256:
        counts = f"{earlier.record.patients} → {record.patients} patients, {earlier.record.rows} → {record.rows} rows"
        return f"{reason}. The source now gives other records ({counts}): take another name"
    if earlier.state() == "there":
        return f"{reason}. The source still gives the same records: use it"
    return (
        f"{reason}. The source still gives the same records, and its files are no longer as they were: move them away, "
        "and take it once more with the same path. Then they are put back"
    )


def sizes_of(snapshot: Path) -> dict[str, int]:
    """Return the size of each file of a snapshot in bytes, by its name."""
    paths = snapshot.iterdir() if snapshot.is_dir() else [snapshot] if snapshot.is_file() else []
    return {path.name: path.stat().st_size for path in paths}
