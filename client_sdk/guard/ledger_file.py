"""The file of a hospital's ledger: where it lies, what stands in it, and that one process at a time writes to it."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from client_sdk.errors import ConfigurationError, LedgerInUse
from client_sdk.guard.seen_ledger import SCHEMA as SEEN_SCHEMA
from study_protocol.files.durable import move_durably
from study_protocol.files.lock import FileInUse, FileLock
from study_protocol.files.names import is_device
from study_protocol.files.private import make_private_folder, open_private
from study_protocol.wire.values import NAME_PATTERN

# An auditor has no data set. What it saw is kept beside those that hospitals have.
OF_AUDITOR = "outside-witness"
# The unique index lets entries without a round repeat, such as `opened`: SQLite holds NULLs apart.
SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    sequence INTEGER PRIMARY KEY,
    kind     TEXT NOT NULL,
    study    TEXT NOT NULL,
    round    INTEGER,
    body     TEXT NOT NULL,
    previous TEXT NOT NULL,
    sha256   TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_charge_per_round ON entries (study, round, kind);
CREATE TABLE IF NOT EXISTS split (one INTEGER PRIMARY KEY CHECK (one = 1), secret BLOB NOT NULL, share REAL NOT NULL);
CREATE TABLE IF NOT EXISTS running_sums (study TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS egress_log (
    number   INTEGER PRIMARY KEY,
    study    TEXT NOT NULL,
    round    INTEGER NOT NULL,
    what     TEXT NOT NULL CHECK (what IN ('update', 'refusal')),
    sha256   TEXT NOT NULL,
    bytes    INTEGER NOT NULL,
    charge   INTEGER REFERENCES entries (sequence),
    ready_at TEXT NOT NULL,
    answer   TEXT,
    sent_at  TEXT,
    taken    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (study, round, what, sha256)
);
"""

_OF_THE_DISK = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}


def seen_in(directory: Path) -> str:
    """Return the copy of a coordinator's ledger that is meant by default: an auditor's, or the one beside `records`."""
    return OF_AUDITOR if ledger_path(directory, OF_AUDITOR).exists() else "records"


def none_at(path: Path) -> str:
    """Return the message for a missing ledger, with the names of those beside it."""
    neighbours = ", ".join(sorted(neighbour.stem for neighbour in path.parent.glob("*.db")))
    return f"there is no ledger at {path}{f'. --dataset names another one: {neighbours}' if neighbours else ''}"


def ledger_path(directory: Path, dataset: str) -> Path:
    """Return the path of a data set's ledger.

    Raises:
        ConfigurationError: not a name, or one of a device.
    """
    if not re.fullmatch(NAME_PATTERN, dataset):
        raise ConfigurationError(f"dataset: {dataset!r} is not a name of lower-case letters, digits and hyphens")
    if is_device(dataset):
        raise ConfigurationError(
            f"dataset: {dataset!r} is the name of a device on Windows, where a file of this name keeps nothing: take "
            "another name"
        )
    return directory / "ledgers" / f"{dataset}.db"


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Return a connection to the ledger's file with its tables. Without `read_only` a missing file is created.

    Raises:
        sqlite3.Error, OSError: it cannot be opened, made or written, or is no database.
    """
    if read_only:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    if not path.exists() or path.stat().st_size == 0:
        _make(path)
    # An error of the system says more than SQLite's.
    os.close(open_private(path, os.O_RDWR))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # With WAL the lesser NORMAL would sync at checkpoints only, and a power cut could undo a charge.
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA + SEEN_SCHEMA)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Write a new file with its tables, and then give it its name: a reader sees no file without tables."""
    new = path.with_suffix(".new")
    for leftover in (new, Path(f"{new}-journal"), Path(f"{path}-wal"), Path(f"{path}-shm")):
        leftover.unlink(missing_ok=True)
    # Made here with its mode. SQLite would leave that to the umask.
    os.close(open_private(new, os.O_RDWR | os.O_CREAT))
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        connection.executescript(SCHEMA + SEEN_SCHEMA)
    move_durably(new, path)


def take_lock(path: Path) -> FileLock:
    """Return a lock that holds the ledger for this process alone. Raises LedgerInUse, OSError."""
    make_private_folder(path.parent)
    try:
        return FileLock(path.with_suffix(".lock"))
    except FileInUse as error:
        raise LedgerInUse(f"another process uses the ledger {path}: stop it first") from error


def is_of_the_disk(error: BaseException) -> bool:
    """Return whether SQLite could not open, read or write the file. This is no evidence about its contents."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    # An extended code holds the primary one in its lowest byte.
    return code is not None and code & 0xFF in _OF_THE_DISK
