"""The coordinator's ledger as this hospital has seen it, in the hospital's own file: what must be continued.

Every entry is kept whole. Another hospital's head can then be looked up, and the ledger that was shown here can be
handed out.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from accounting.budget.ledger import GENESIS, Entry
from client_sdk.errors import LedgerDamaged
from study_protocol.study.messages import WitnessedHead

# `signed`: the document of the coordinator that named the head, with its signature. `account`: this hospital's own
# calculation of the study's budget up to it. `heads_ahead`: what others have signed beyond it.
SCHEMA = """
CREATE TABLE IF NOT EXISTS heads_seen (
    study    TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL,
    sha256   TEXT NOT NULL,
    reserved INTEGER NOT NULL,
    signed   TEXT NOT NULL,
    account  TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS entries_seen (
    study    TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    sha256   TEXT NOT NULL,
    entry    TEXT NOT NULL,
    PRIMARY KEY (study, sequence)
);
CREATE TABLE IF NOT EXISTS heads_ahead (
    study    TEXT NOT NULL,
    client   TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    sha256   TEXT NOT NULL,
    witness  TEXT NOT NULL,
    PRIMARY KEY (study, client, sequence, sha256)
);
"""


@dataclass(frozen=True)
class SeenHead:
    """How far the coordinator's ledger had come: entries, last hash, last round reserved. By default no entry was
    seen."""

    sequence: int = 0
    sha256: str = GENESIS
    reserved: int = 0


@dataclass(frozen=True)
class LedgerStep:
    """From one head to a later one.

    entries  those between them
    signed   the document that names the new head
    account  the hospital's own calculation after them
    heads_ahead  heads of other hospitals that lie beyond the new one
    """

    entries: Sequence[Entry]
    head: SeenHead
    signed: Mapping[str, Any]
    account: Mapping[str, Any]
    heads_ahead: Sequence[WitnessedHead]


class SeenLedger:
    """One study's. writing: a transaction that is synced when it ends."""

    def __init__(
        self, connection: sqlite3.Connection, writing: Callable[[], AbstractContextManager[None]], study: str
    ) -> None:
        self._connection, self._writing, self._study = connection, writing, study

    @property
    def head(self) -> SeenHead:
        """Return the head that must be continued. Every signature reads it from here: durable, and only ever an
        extension."""
        row = self._row("SELECT sequence, sha256, reserved FROM heads_seen WHERE study = ?")
        return SeenHead() if row is None else SeenHead(*row)

    @property
    def signed(self) -> dict[str, Any] | None:
        """Return the coordinator's document that named the head, or None where no head was seen."""
        row = self._row("SELECT signed FROM heads_seen WHERE study = ?")
        return None if row is None else json.loads(row[0])

    @property
    def account(self) -> dict[str, Any] | None:
        """Return the hospital's own calculation of the study's budget at the head, or None where no head was seen."""
        row = self._row("SELECT account FROM heads_seen WHERE study = ?")
        return None if row is None else json.loads(row[0])

    def hash_of(self, sequence: int) -> str | None:
        """Return the hash of an entry, or None for one that was not seen."""
        row = self._row("SELECT sha256 FROM entries_seen WHERE study = ? AND sequence = ?", sequence)
        return None if row is None else row[0]

    def entries(self) -> list[Entry]:
        """All that were seen, in order."""
        rows = self._connection.execute(
            "SELECT entry FROM entries_seen WHERE study = ? ORDER BY sequence", (self._study,)
        )
        return [Entry.from_dict(json.loads(row[0])) for row in rows]

    def reservations(self, last: int) -> list[tuple[int, int]]:
        """(entry, round) of at most the `last` newest reservations, of training and of queries, the newest first."""
        rows = self._connection.execute(
            "SELECT entry FROM entries_seen WHERE study = ? ORDER BY sequence DESC", (self._study,)
        )
        entries = (Entry.from_dict(json.loads(row[0])) for row in rows)
        charges = ((entry.sequence, entry.round or 0) for entry in entries if entry.kind in ("reserved", "asked"))
        return list(islice(charges, last))

    def keep_ahead(self, witness: WitnessedHead) -> None:
        """Keep a head that another hospital has signed beyond this one. It is looked up once the ledger comes to it."""
        row = (self._study, witness.client, witness.head.entries, witness.head.sha256, witness.model_dump_json())
        with self._writing():
            self._connection.execute("INSERT OR IGNORE INTO heads_ahead VALUES (?, ?, ?, ?, ?)", row)

    def charge_of(self, round_number: int) -> tuple[int, str] | None:
        """Return number and hash of the entry that charges a round, or reserves its cost, or None if none was seen."""
        rows = self._connection.execute(
            "SELECT entry FROM entries_seen WHERE study = ? ORDER BY sequence DESC", (self._study,)
        )
        # The newest first, one by one: it is the last or nearly so.
        entries = (Entry.from_dict(json.loads(row[0])) for row in rows)
        charges = (entry for entry in entries if entry.round == round_number and entry.kind in ("reserved", "asked"))
        return next(((entry.sequence, entry.sha256) for entry in charges), None)

    def heads_ahead(self) -> list[WitnessedHead]:
        """Heads that other hospitals signed and that this one has not come to yet."""
        rows = self._connection.execute(
            "SELECT witness FROM heads_ahead WHERE study = ? ORDER BY sequence, client", (self._study,)
        )
        return [WitnessedHead.model_validate_json(row[0]) for row in rows]

    def extend(self, step: LedgerStep) -> None:
        """From now on the coordinator's ledger must extend `step.head`. Durable when this returns.

        Raises:
            LedgerDamaged: the entries do not lead from the head that was seen to the new one. No entry is written.
            LedgerNotWritten: the ledger is unchanged.
        """
        before = self.head
        links = [(before.sequence, before.sha256), *((entry.sequence, entry.sha256) for entry in step.entries)]
        parents = [(entry.sequence - 1, entry.previous) for entry in step.entries]
        # The last guard of what is signed: no two heads that are stored here one after the other lie on two chains.
        if links[:-1] != parents or links[-1] != (step.head.sequence, step.head.sha256):
            raise LedgerDamaged("the ledger that was seen is not continued by what was to be written after it")
        rows = [(self._study, e.sequence, e.sha256, json.dumps(e.to_dict())) for e in step.entries]
        earlier = [
            (self._study, w.client, w.head.entries, w.head.sha256, w.model_dump_json())
            for w in step.heads_ahead
        ]  # fmt: skip
        values = (self._study, step.head.sequence, step.head.sha256, step.head.reserved)
        with self._writing():
            self._connection.executemany("INSERT INTO entries_seen VALUES (?, ?, ?, ?)", rows)
            self._connection.execute(
                "DELETE FROM heads_ahead WHERE study = ? AND sequence <= ?", (self._study, step.head.sequence)
            )
            self._connection.executemany("INSERT OR IGNORE INTO heads_ahead VALUES (?, ?, ?, ?, ?)", earlier)
            self._connection.execute(
                "INSERT OR REPLACE INTO heads_seen VALUES (?, ?, ?, ?, ?, ?)",
                (*values, json.dumps(step.signed), json.dumps(step.account)),
            )

    def _row(self, query: str, *more: int) -> tuple[Any, ...] | None:
        return self._connection.execute(query, (self._study, *more)).fetchone()
