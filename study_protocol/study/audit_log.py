"""The audit log: who asked the coordinator for which change, chained by hash. Pure.

Each study has a log, and the coordinator has one for what belongs to no study. An entry's hash covers its content and
the hash before it, so the last hash fixes the whole past. The coordinator signs the last hash, and the study's ledger
names it whenever a person acts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from pydantic import AwareDatetime, Field

from study_protocol.study.people import GivenKey
from study_protocol.study.roles import Role
from study_protocol.wire.octets import Signature
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import Message, Name, Sha256, Whole

ActorKind = Literal["key", "session", "hospital", "machine", "unknown"]
BEFORE_THE_LOG = "before-the-log"
AUDIT_HEAD = "wardround/1/audit-head"
# Before the first entry, as in a study's ledger.
GENESIS = "0" * 64


class AuditLogFault(Exception):
    """The entries are no audit log. sequence: the first entry that does not fit."""

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"audit log entry {sequence}: {reason}")
        self.sequence, self.reason = sequence, reason


class Actor(Message):
    """The person or hospital that asked for a change.

    kind  `key` and `session` are people at the API. `machine` is a command on the coordinator's own machine. `unknown`
          stands in the first entry of a log that is younger than its study
    id    of the key. Of a session, the person's lasting id at the identity provider. Empty otherwise
    name  of the person or the hospital. Of `machine`, the operating system's user
    role  that allowed the change. null for other kinds than `key` and `session`
    """

    kind: ActorKind
    id: str = ""
    name: str
    role: Role | None = None

    def __str__(self) -> str:
        role = f", {self.role}" if self.role else ""
        return f"{self.name or 'no name'} ({self.kind}{f' {self.id}' if self.id else ''}{role})"


class AuditEvent(Message):
    """What was asked.

    at           when, on the database's clock
    actor        who
    action       operation of the API, or the command
    address      path of the request, which names hospital, question or key
    key          that was made. null for other actions
    request_id   as in the answer's header and in the coordinator's log
    body_sha256  of the request's body. null if it was streamed, or there is none
    """

    at: AwareDatetime
    actor: Actor
    action: str
    address: str = ""
    key: GivenKey | None = None
    request_id: str = ""
    body_sha256: Sha256 | None = None


class AuditEntry(Message):
    """One line of the log.

    study     null in the coordinator's own log
    sequence  from 1, without gaps
    event     what was asked, and who asked
    previous  hash of the entry before
    sha256    over the other fields as canonical JSON
    """

    study: Name | None
    sequence: Whole = Field(ge=1)
    event: AuditEvent
    previous: Sha256
    sha256: Sha256

    def digest(self) -> str:
        """Return the hash of the content."""
        content = self.model_dump(mode="json", exclude={"sha256"})
        return hashlib.sha256(canonical_json(content)).hexdigest()


class AuditHead(Message):
    """The end of a log.

    study    null for the coordinator's own log
    entries  how many it has
    sha256   hash of the last one
    """

    study: Name | None
    entries: Whole = Field(ge=0)
    sha256: Sha256


class SignedAuditHead(Message):
    """The head with its signature.

    head       the end of the log
    signature  the coordinator's. null: the log has only the entry of an upgrade, or the database was changed
    """

    head: AuditHead
    signature: Signature | None


class AuditPage(Message):
    """One page of a log.

    entries          above `after`, in order
    signed           the head of the whole log
    coordinator_key  what the head is signed with
    fault            the first thing in page or head that is not as the coordinator wrote it. null: there is none
    next             ask for more with `after`. null at the end
    """

    entries: list[AuditEntry]
    signed: SignedAuditHead
    coordinator_key: str
    fault: str | None = None
    next: int | None = None


def next_entry(study: str | None, last: tuple[int, str], event: AuditEvent) -> AuditEntry:
    """Return the entry that follows the one with this number and hash. (0, GENESIS): the first."""
    sequence, previous = last
    entry = AuditEntry(study=study, sequence=sequence + 1, event=event, previous=previous, sha256=GENESIS)
    return entry.model_copy(update={"sha256": entry.digest()})


def verify_entries(
    entries: Iterable[AuditEntry], study: str | None, after: tuple[int, str] = (0, GENESIS)
) -> tuple[int, str]:
    """Check that the entries continue the log of a study, and return number and hash of the last one.

    Raises:
        AuditLogFault: an entry is missing, changed, of another log, or out of order.
    """
    sequence, sha256 = after
    for entry in entries:
        if entry.study != study:
            raise AuditLogFault(entry.sequence, "belongs to another log")
        if entry.sequence != sequence + 1:
            raise AuditLogFault(entry.sequence, f"follows entry {sequence}: entries are missing or repeated")
        if entry.previous != sha256:
            raise AuditLogFault(entry.sequence, "does not name the hash of the entry before it")
        if entry.digest() != entry.sha256:
            raise AuditLogFault(entry.sequence, "its content does not have its hash")
        sequence, sha256 = entry.sequence, entry.sha256
    return sequence, sha256
