"""What leaves this building: the finished bytes, kept until a later round is assigned, and the egress log.

The log says what left, when, its digest, and which charge paid for it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from client_sdk.durable import sync_directory, write_durably
from client_sdk.errors import LedgerDamaged

What = Literal["update", "refusal"]

SCHEMA = """
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
    UNIQUE (study, round, what, sha256)
);
"""


@dataclass(frozen=True)
class Departure:
    """One body. `ready_at`: from here on it may have left; `sent_at`, `answer`: when and how the coordinator answered.

    charge: sequence number of the ledger entry that paid for it; a refusal needs none.
    Times are UTC in ISO 8601.
    """

    study: str
    round: int
    what: What
    sha256: str
    bytes: int
    charge: int | None
    ready_at: str
    answer: str | None = None
    sent_at: str | None = None


class Outbox:
    """One study's folder: one file a round, synced before anything is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, round: int, body: bytes) -> None:
        """Durable when this returns."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._file(round), body)

    def take(self, round: int, sha256: str | None) -> bytes:
        """The bytes of `round`, as often as asked.

        Raises:
            LedgerDamaged: the ledger holds another digest, or none.
        """
        try:
            body = self._file(round).read_bytes()
        except OSError:
            body = b""
        if hashlib.sha256(body).hexdigest() != sha256:
            raise LedgerDamaged(f"the finished update of round {round} is gone from {self.folder}")
        return body

    def forget_before(self, round: int) -> None:
        """Scrub updates of earlier rounds: they will not be asked for again, and their digests are in the ledger."""
        old = [p for p in self.folder.glob("*.safetensors") if p.stem.isdigit() and int(p.stem) < round]
        for path in old:
            path.unlink()
        if old:
            sync_directory(self.folder)

    def _file(self, round: int) -> Path:
        return self.folder / f"{round}.safetensors"


def make_ready(connection: sqlite3.Connection, departure: Departure) -> None:
    """Write the body down before its first byte leaves; a body made ready twice is one line."""
    connection.execute(
        "INSERT OR IGNORE INTO egress_log (study, round, what, sha256, bytes, charge, ready_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            departure.study,
            departure.round,
            departure.what,
            departure.sha256,
            departure.bytes,
            departure.charge,
            departure.ready_at,
        ),
    )


def mark_answered(
    connection: sqlite3.Connection, study: str, round: int, sha256: str, *, answer: str, sent_at: str
) -> None:
    """Keep the first answer to a body; a repetition changes nothing."""
    connection.execute(
        "UPDATE egress_log SET answer = ?, sent_at = ?"
        " WHERE study = ? AND round = ? AND sha256 = ? AND sent_at IS NULL",
        (answer, sent_at, study, round, sha256),
    )


def departures(connection: sqlite3.Connection, study: str | None = None) -> list[Departure]:
    """Everything that left or may have left, oldest first."""
    rows = connection.execute(
        "SELECT study, round, what, sha256, bytes, charge, ready_at, answer, sent_at FROM egress_log"
        " WHERE ? IS NULL OR study = ? ORDER BY number",
        (study, study),
    )
    return [Departure(*row) for row in rows]
