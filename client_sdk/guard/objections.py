"""The ledger of objections: that a patient objected, when, and who wrote it down. It never holds an identifier.

It is one file for the hospital, beside the ledgers of its data sets. So a patient can object while a study runs. It
never leaves the hospital, and neither does the key of its digests.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from accounting.budget.ledger import Entry
from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.exclusion import ExclusionList
from client_sdk.guard.ledger_chain import DECLARED, LedgerChain
from client_sdk.guard.people import DecidingPerson
from study_protocol.cells.identity import objection_key

OBJECTIONS_LEDGER = "objections.db"
# Stands where a study's name does in the ledger of a data set.
_OBJECTION = "/objection"
_LABEL = b"wardround/1/objection"


@dataclass(frozen=True, repr=False)
class Objection:
    """One entry.

    number   of the entry, from 1
    digest   keyed digest of the identifier, as `ObjectionLedger.digest`
    at       when it was written, UTC in ISO 8601
    since    when the first entry of this patient was written
    person   who wrote it down
    ledgers  data set -> number of the last entry in its ledger by then, None where it could not be read. A later round
             has not read this patient's records
    renewed  it is a further entry of a patient who had left the list
    """

    number: int
    digest: str
    at: str
    since: str
    person: DecidingPerson
    ledgers: Mapping[str, int | None]
    renewed: bool = False

    @classmethod
    def from_entry(cls, entry: Entry) -> Self:
        """Return the objection of an entry. Raises LedgerDamaged: this version does not know its form."""
        body = entry.body
        try:
            person, ledgers = DecidingPerson.from_dict(body["person"]), dict(body["ledgers"])
            return cls(entry.sequence, body["digest"], body["at"], body["at"], person, ledgers)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerDamaged(
                f"entry {entry.sequence} of {OBJECTIONS_LEDGER} is no objection that this version knows. If a newer "
                "version wrote it, use that one"
            ) from error


class ObjectionLedger(LedgerChain):
    """The objections of a hospital. It is opened for one command at a time."""

    @classmethod
    def open_in(cls, home: Path) -> Self:
        """Return the ledger in the hospital's directory, a new one if there is none. Raises as `wait_for`."""
        return cls.wait_for(home / OBJECTIONS_LEDGER)

    def objections(self) -> list[Objection]:
        """Return the newest objection of every patient, the oldest first."""
        newest: dict[str, Objection] = {}
        for objection in map(Objection.from_entry, self._of(_OBJECTION)):
            before = newest.pop(objection.digest, objection)
            newest[objection.digest] = replace(objection, since=before.since, renewed=before is not objection)
        return list(newest.values())

    def digest(self, identity: str) -> str:
        """Return the keyed digest (HMAC-SHA256, hex) of an identifier. Spellings that exclusion matches have one.

        Without the key, which is in this ledger alone, a list of all identifiers gives no digest.
        """
        return hmac.digest(self._key, _LABEL + objection_key(identity).encode(), "sha256").hex()

    def find(self, identity: str) -> Objection | None:
        """Return the objection of a patient, or None without one."""
        digest = self.digest(identity)
        return next((each for each in self.objections() if hmac.compare_digest(each.digest, digest)), None)

    def listed(self, exclusions: ExclusionList) -> set[str]:
        """Return the digests of all patients on a list."""
        return {self.digest(entry.identity) for entry in exclusions.entries}

    def record(
        self, identities: Iterable[str], person: DecidingPerson, ledgers: Mapping[str, int | None]
    ) -> list[Objection]:
        """Write an entry for each patient who has none, all in one commit, and return the new ones.

        Raises:
            LedgerNotWritten: the ledger is unchanged.
        """
        recorded_digests = {each.digest for each in self.objections()}
        # Two spellings in one command are one patient, too.
        digests = dict.fromkeys(map(self.digest, identities))
        return self._write([each for each in digests if each not in recorded_digests], person, ledgers)

    def renew(
        self, identities: Iterable[str], person: DecidingPerson, ledgers: Mapping[str, int | None]
    ) -> list[Objection]:
        """Write a further entry for each patient, all in one commit, and return them. Raises as `record`."""
        return self._write(list(dict.fromkeys(map(self.digest, identities))), person, ledgers)

    def _write(
        self, digests: Sequence[str], person: DecidingPerson, ledgers: Mapping[str, int | None]
    ) -> list[Objection]:
        before = len(self._entries)
        if digests:
            with self._writing():
                self._connection.execute("INSERT OR IGNORE INTO running_sums VALUES (?, ?)", (_OBJECTION, self._key))
                for digest in digests:
                    body = {"digest": digest, "person": person.to_dict(), "ledgers": dict(ledgers)}
                    self._append(DECLARED, _OBJECTION, None, {**body, "at": self._moment()})
        return [Objection.from_entry(entry) for entry in self._entries[before:]]

    @cached_property
    def _key(self) -> bytes:
        query = "SELECT data FROM running_sums WHERE study = ?"
        row = self._connection.execute(query, (_OBJECTION,)).fetchone()
        # With a new key no patient would be found any more, and each could be recorded twice.
        if row is None and self._entries:
            raise LedgerDamaged(f"{OBJECTIONS_LEDGER} has lost the key of its digests: restore it from a backup")
        return secrets.token_bytes(32) if row is None else bytes(row[0])


def objection_of(home: Path, identity: str, exclusions: ExclusionList) -> Objection:
    """Return a patient's objection, also while another process writes.

    Raises:
        ConfigurationError: no objection of this patient is recorded, or the list does not name the patient any more.
        LedgerDamaged, LedgerNotWritten: the ledger cannot be read.
    """
    objection = None
    if (home / OBJECTIONS_LEDGER).exists():
        with ObjectionLedger.open(home / OBJECTIONS_LEDGER, read_only=True) as ledger:
            objection = ledger.find(identity)
    if objection is None:
        raise ConfigurationError(
            "no objection of this patient is recorded here: `wardround objection add` records one and leaves the "
            "patient out"
        )
    if objection_key(identity) not in {objection_key(entry.identity) for entry in exclusions.entries}:
        # A letter would say that nothing reads the records.
        raise ConfigurationError(
            f"objection {objection.number}: the patient is not on the list any more, and studies read the records. "
            "`wardround objection add` leaves the patient out again"
        )
    return objection
