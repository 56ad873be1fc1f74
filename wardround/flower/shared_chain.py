"""A chain of entries that several processes append to in turn, each with the file open all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from accounting.budget.ledger import GENESIS, Kind, LedgerError, verify_chain
from client_sdk.errors import LedgerDamaged, LedgerInUse
from client_sdk.guard import ledger_file
from client_sdk.guard.ledger_chain import LedgerChain, entry_of
from study_protocol.files.lock import FileLock

_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.005


class SharedChain(LedgerChain):
    """The chain of a ledger whose lock is held for one entry at a time.

    Two runs on one population then draw from one budget, and neither has to end before the other begins.
    """

    _path: Path
    _file: tuple[int, int]

    @classmethod
    def open(
        cls, path: Path, *, read_only: bool = False, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> Self:
        """Return the chain at `path`. Without `read_only` a missing file is created. Raises as `LedgerChain.open`."""
        chain = super().open(path, read_only=read_only, now=now)
        chain._path, chain._file = path, _identity(path)
        # Not held between entries: another run on the same people has to be able to charge.
        if chain._lock is not None:
            chain._lock.release()
        return chain

    @contextmanager
    def turn(self) -> Generator[None]:
        """Hold the lock, with all that other processes have appended.

        Raises:
            LedgerInUse: another process holds the lock for ten seconds.
            LedgerDamaged: the file was replaced, or the entries in it are not those that were read before.
        """
        lock = self._take_lock()
        try:
            self._read_on()
            yield
        finally:
            lock.release()

    def write(self, kind: Kind, run: str, number: int | None, body: Mapping[str, Any]) -> None:
        """Append one entry, durably. Only in a turn. Raises LedgerNotWritten: the chain is unchanged."""
        with self._writing():
            self._append(kind, run, number, body)

    def last_number(self, run: str) -> int:
        """Return the largest number among the entries of a run, or 0."""
        query = "SELECT COALESCE(MAX(round), 0) FROM entries WHERE study = ?"
        return int(self._connection.execute(query, (run,)).fetchone()[0])

    def _take_lock(self) -> FileLock:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return ledger_file.take_lock(self._path)
            except LedgerInUse:
                if time.monotonic() >= end:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _read_on(self) -> None:
        # A charge in a file that has lost its name would be lost with this process.
        if not self._path.exists() or _identity(self._path) != self._file:
            raise LedgerDamaged(f"{self._path} was replaced while it was in use: restore the file with all charges")
        # Only what is new is read and hashed, so that a turn costs the same in a long ledger.
        last = len(self._entries)
        rows = self._connection.execute("SELECT * FROM entries WHERE sequence >= ? ORDER BY sequence", (max(last, 1),))
        try:
            entries = [entry_of(row) for row in rows]
            # The last known entry is read again: a chain that was cut and written anew would differ in it.
            if last and entries[:1] != self._entries[-1:]:
                raise LedgerError(last, "is another one than before")
            later = entries[1:] if last else entries
            verify_chain(later, after=(last, self._entries[-1].sha256) if last else (0, GENESIS))
        except (LedgerError, ValueError, TypeError) as error:
            raise LedgerDamaged(f"the ledger {self._path} is not what was written: {error}") from error
        self._entries.extend(later)


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
