"""The chain of entries in a hospital's ledger: one SQLite file, one writing process, every commit synced.

The entries are hash-chained like the coordinator's. Their meaning is the business of `HospitalLedger`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, cast

from accounting.budget.ledger import Entry, Kind, LedgerError, append, verify_chain
from client_sdk.errors import ConfigurationError, LedgerDamaged, LedgerInUse, LedgerNotWritten
from client_sdk.guard import ledger_file
from study_protocol.files.lock import FileLock

# A kind that the coordinator's ledger does not have: what a person here, or the policy, has declared.
DECLARED = cast(Kind, "declared")
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.1


class LedgerChain:
    """Entries that are only ever appended. One process opens them at a time, and others can open them read-only.

    Raises LedgerInUse, LedgerDamaged, LedgerNotWritten (then the ledger is unchanged).
    """

    def __init__(self, connection: sqlite3.Connection, lock: FileLock | None, now: Callable[[], datetime]) -> None:
        self._connection, self._lock, self._now = connection, lock, now
        rows = connection.execute("SELECT * FROM entries ORDER BY sequence").fetchall()
        try:
            self._entries = [entry_of(row) for row in rows]
            verify_chain(self._entries)
        # The others: an entry that is no JSON, or has more cells.
        except (LedgerError, ValueError, TypeError) as error:
            raise LedgerDamaged(f"the hospital's ledger is not what was written: {error}") from error

    @classmethod
    def open(
        cls, path: Path, *, read_only: bool = False, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> Self:
        """The ledger at `path`, a new one if there is none.

        Raises:
            LedgerInUse: another process has it open.
            LedgerDamaged: not a ledger, or its chain is broken.
            LedgerNotWritten: the disk is full, or the file may not be made, read or written.
            ConfigurationError: read_only, and no ledger is there.
        """
        if read_only and not path.exists():
            raise ConfigurationError(ledger_file.none_at(path))
        lock: FileLock | None = None
        connection: sqlite3.Connection | None = None
        try:
            # Reading goes on beside a hospital that takes part.
            lock = None if read_only else ledger_file.take_lock(path)
            connection = ledger_file.connect(path, read_only=read_only)
            return cls(connection, lock, now)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if lock is not None:
                lock.release()
            if (fault := _fault_of(path, error)) is not None:
                raise fault from error
            raise

    @classmethod
    def wait_for(cls, path: Path, patience: float = _PATIENCE_SECONDS) -> Self:
        """Return the ledger at `path` once no other process writes to it.

        patience  seconds to wait while another process writes its entry

        Raises:
            LedgerInUse, LedgerDamaged, LedgerNotWritten: as `open`.
        """
        end = time.monotonic() + patience
        while True:
            try:
                return cls.open(path)
            except LedgerInUse:
                if time.monotonic() >= end:
                    raise
            time.sleep(_PAUSE_SECONDS)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    @property
    def next_sequence(self) -> int:
        """Of the entry that is written next."""
        return self._entries[-1].sequence + 1 if self._entries else 1

    def close(self) -> None:
        """Let another process have it."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of(self, study: str) -> Iterator[Entry]:
        return (entry for entry in self._entries if entry.body["study"] == study)

    def _moment(self) -> str:
        return self._now().isoformat(timespec="seconds")

    @contextmanager
    def _writing(self) -> Generator[None]:
        before = len(self._entries)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        # An interruption too: what is not committed may not stay in memory.
        except BaseException as error:
            del self._entries[before:]
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise LedgerNotWritten("the hospital's ledger cannot be written. Is the disk full?") from error
            raise

    def _append(self, kind: Kind, study: str, round_number: int | None, body: Mapping[str, Any]) -> None:
        entry = append(self._entries[-1] if self._entries else None, kind, round_number, {"study": study, **body})
        row = (entry.sequence, kind, study, round_number, json.dumps(dict(entry.body)), entry.previous, entry.sha256)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._entries.append(entry)


def entry_of(row: tuple[Any, ...]) -> Entry:
    """Return the entry in a row of the table. Raises ValueError, TypeError: the row holds none."""
    sequence, kind, _, round, body, previous, sha256 = row
    return Entry(sequence, kind, round, json.loads(body), previous, sha256)


def _fault_of(path: Path, error: BaseException) -> LedgerNotWritten | LedgerDamaged | None:
    """Return what an error says of the ledger, in words, or None if it is of something else."""
    if isinstance(error, OSError) or ledger_file.is_of_the_disk(error):
        owner = " Run the command as the account that owns it" if isinstance(error, PermissionError) else ""
        return LedgerNotWritten(f"{path} cannot be used ({error}): is the disk full or read-only?{owner}")
    if isinstance(error, sqlite3.DatabaseError):
        return LedgerDamaged(f"{path} is not a hospital's ledger")
    return None
