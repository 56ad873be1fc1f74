"""The ledger of a hospital's snapshots: what was frozen, when, by whom, from which source and with which query.

It is one file for the hospital, beside the ledgers of its data sets. So a snapshot can be taken while a study runs. It
never leaves the hospital.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from client_sdk.errors import ConfigurationError, LedgerInUse, RecordsChanged
from client_sdk.guard.ledger_chain import DECLARED, LedgerChain

LEDGER_FILE = "snapshots.db"
# Stands where a study's name does in the ledger of a data set.
_SNAPSHOT = "/snapshot"
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.1


@dataclass(frozen=True)
class QueryText:
    """One query. For a cohort in public concepts the text is the section `cohort` of the study's settings.

    file    absolute path of the file that it was read from
    text    as it was run
    sha256  of the text
    """

    file: str
    text: str
    sha256: str


@dataclass(frozen=True)
class SnapshotFile:
    """One file of a snapshot.

    name   below the snapshot's folder. Of a snapshot of one file: the name of the file
    bytes  its size
    rows   of its table
    """

    name: str
    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class Snapshot:
    """One entry: records that were frozen.

    path            absolute path of the file, or of the folder of files
    kind            of the source: sql, omop, fhir or workbook
    source          in words, without a password
    description     absolute path of the source file (`source.toml`)
    query_sha256    of all queries together, or of the cohort. Empty: the source has none
    patient_column  of every table
    sha256          of all files together
    person          who took it
    at              time of the entry, UTC in ISO 8601. Empty: not written yet
    """

    name: str
    path: str
    kind: str
    source: str
    description: str
    queries: tuple[QueryText, ...]
    query_sha256: str
    patient_column: str | None
    patients: int
    files: tuple[SnapshotFile, ...]
    sha256: str
    person: str
    at: str = ""

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Self:
        """Return the snapshot of an entry."""
        known = {each.name: body[each.name] for each in fields(cls)}
        queries = tuple(QueryText(**query) for query in known.pop("queries"))
        return cls(queries=queries, files=tuple(SnapshotFile(**file) for file in known.pop("files")), **known)

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(file.rows for file in self.files)

    def locations(self) -> dict[Path, SnapshotFile]:
        """Return the path of each file."""
        whole = Path(self.path)
        return {whole if file.name == whole.name else whole / file.name: file for file in self.files}

    def state(self) -> str:
        """Return the state of the files by their names and sizes: there, missing, or changed size."""
        whole, locations = Path(self.path), self.locations()
        if not all(path.is_file() for path in locations):
            return "missing"
        is_same = all(path.stat().st_size == file.bytes for path, file in locations.items())
        return "there" if is_same and not _foreign(whole, locations) else "changed size"

    def require_unchanged(self) -> None:
        """Compare every file with the entry.

        Raises:
            RecordsChanged: a file is missing, is another one, or was added. The message has both digests.
            OSError: a file cannot be read.
        """
        advice = "Restore it from a backup, or take a new snapshot under another name"
        for path, file in self.locations().items():
            found = _sha256(path) if path.is_file() else "missing"
            if found != file.sha256:
                found_in_words = "the file is missing" if found == "missing" else f"its SHA-256 is {found}"
                raise RecordsChanged(
                    f"{path} is not as snapshot {self.name} of {self.at[:10]} left it: {found_in_words}, and the "
                    f"hospital's ledger names {file.sha256}. {advice}"
                )
        if added := _foreign(Path(self.path), self.locations()):
            raise RecordsChanged(
                f"{self.path} holds {added} files that snapshot {self.name} does not have: move them away"
            )


class SnapshotLedger(LedgerChain):
    """The snapshots of a hospital. It is opened for one entry at a time."""

    @classmethod
    def wait_for(cls, home: Path, patience: float = _PATIENCE_SECONDS) -> Self:
        """Return the ledger in the hospital's directory, a new one if there is none.

        patience  seconds to wait while another process writes its entry

        Raises:
            LedgerInUse, LedgerDamaged, LedgerNotWritten: as `LedgerChain.open`.
        """
        end = time.monotonic() + patience
        while True:
            try:
                return cls.open(home / LEDGER_FILE)
            except LedgerInUse:
                if time.monotonic() >= end:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots, the oldest first."""
        return [Snapshot.from_dict(entry.body) for entry in self._of(_SNAPSHOT)]

    def record(self, snapshot: Snapshot) -> Snapshot:
        """Write the entry of a snapshot, and return it with its time. It is durable when this returns.

        Raises:
            ConfigurationError: a snapshot of this name is there. Snapshots are frozen.
            LedgerNotWritten: the ledger is unchanged.
        """
        if (known := named(self.snapshots(), snapshot.name)) is not None:
            raise ConfigurationError(taken(known, snapshot.sha256))
        written = replace(snapshot, at=self._moment())
        with self._writing():
            self._append(DECLARED, _SNAPSHOT, None, asdict(written))
        return written


def snapshots_in(home: Path) -> list[Snapshot]:
    """Return the snapshots of a hospital, the oldest first, also while another process writes. None: an empty list.

    Raises:
        LedgerDamaged: not a ledger, or its chain is broken.
        LedgerNotWritten: the file cannot be read.
    """
    if not (home / LEDGER_FILE).exists():
        return []
    with SnapshotLedger.open(home / LEDGER_FILE, read_only=True) as ledger:
        return ledger.snapshots()


def named(snapshots: list[Snapshot], name: str) -> Snapshot | None:
    """Return the snapshot of this name, or None."""
    return next((snapshot for snapshot in snapshots if snapshot.name == name), None)


def taken(known: Snapshot, sha256: str) -> str:
    """Return the message that a name is taken, with whether the content would be the same."""
    content = (
        "The same records would be written: use it"
        if sha256 == known.sha256
        else "Other records would be written: take another name"
    )
    return f"{known.name} is a snapshot of {known.at[:10]} already ({known.path}), and snapshots are frozen. {content}"


def _foreign(whole: Path, locations: Mapping[Path, SnapshotFile]) -> int:
    return sum(path not in locations for path in whole.rglob("*")) if whole.is_dir() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
