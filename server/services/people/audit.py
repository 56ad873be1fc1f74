"""The audit log: its entry is written in the transaction of the change, or neither is."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from accounting.budget.bodies import OperatorAction
from accounting.budget.ledger import GENESIS, is_digest
from server.db.ledger_store import LedgerAccount, lock_account
from server.db.people_tables import OF_COORDINATOR, ApiKeyRow, AuditHeadRow, AuditRow, LoginSessionRow
from server.db.row_checks import WRONG_VALUE
from server.db.session import Transaction
from server.db.tables import StudyRow
from server.domain.change_request import ChangeRequest
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.views import at
from server.signing_key import SigningKey
from study_protocol.study.audit_log import (
    AUDIT_HEAD,
    Actor,
    AuditEntry,
    AuditEvent,
    AuditHead,
    AuditLogFault,
    AuditPage,
    SignedAuditHead,
    next_entry,
    verify_entries,
)
from study_protocol.study.people import GivenKey
from study_protocol.versions import NAMED_PEOPLE
from study_protocol.wire.signing import SigningError, canonical_json, decode_public_key, verify_document

logger = logging.getLogger("wardround.coordinator")
# The entry of this transaction.
_ENTRY = "audit-entry"
_UNREADABLE = (*WRONG_VALUE, RecursionError)
# SQLite keeps any value as a number. A row without one that can follow another is missing.
_ROWS = select(AuditRow.sequence, AuditRow.event, AuditRow.previous, AuditRow.sha256).where(
    AuditRow.sequence.between(1, 2**53 - 1)
)


def acting(coordinator: Coordinator, request: ChangeRequest) -> Coordinator:
    """Return the coordinator as it serves this request: what it writes has an entry in the audit log.

    Its writes raise Rejected `bad-token` once key or session of the actor has ended.
    """

    def begin(tx: Transaction) -> None:
        write_entry(tx, coordinator.signer, request)
        # After the wait for the log's end, during which key or session may have ended.
        _require_standing(tx, request)

    return replace(coordinator, database=coordinator.database.beginning_with(begin), asked=request)


def _require_standing(tx: Transaction, request: ChangeRequest) -> None:
    """Check that key or session did not end while the request waited, or while its body came in.

    The row stays locked: a key that ends meanwhile ends after this change.
    """
    actor = request.actor
    if actor.kind == "key":
        ends = select(ApiKeyRow.revoked_at, ApiKeyRow.expires_at).where(ApiKeyRow.id == actor.id)
        key = tx.session.execute(ends.with_for_update(read=True)).one_or_none()
        if key is not None and (key.revoked_at is not None or _is_over(tx, key.expires_at)):
            raise Rejected("bad-token", "the API key is no longer valid: ask for a new one")
    if request.session is not None:
        of_session = select(LoginSessionRow.expires_at).where(LoginSessionRow.id == request.session)
        session = tx.session.execute(of_session.with_for_update(read=True)).one_or_none()
        if session is None or _is_over(tx, session.expires_at):
            raise Rejected("bad-token", "the session is not valid, or was ended: log in again")


def _is_over(tx: Transaction, expires_at: float | None) -> bool:
    return expires_at is not None and expires_at <= tx.now()


def write_entry(tx: Transaction, signer: SigningKey, request: ChangeRequest) -> None:
    """Append an entry to its log, in the transaction of the change.

    A log whose end is not what was signed goes on without a signature: a hospital must be able to leave, and a study to
    be stopped. A reader of the log is told.
    """
    end = _lock_end(tx, request.study)
    fault = end.fault(signer)
    event = AuditEvent(
        at=at(tx.now()),
        actor=request.actor,
        action=request.action,
        address=request.address,
        key=request.key,
        request_id=request.request_id,
        body_sha256=request.body_sha256,
    )
    entry = next_entry(request.study, end.last, event)
    text = canonical_json(event.model_dump(mode="json")).decode()
    row = {"study": end.log, "sequence": entry.sequence, "event": text, "written_by": tx.name}
    tx.session.execute(insert(AuditRow).values(**row, previous=entry.previous, sha256=entry.sha256))
    head = AuditHead(study=request.study, entries=entry.sequence, sha256=entry.sha256)
    signature = signer.sign(AUDIT_HEAD, head.model_dump(mode="json")) if fault is None else None
    ended = {"entries": entry.sequence, "sha256": entry.sha256, "signature": signature, "written_by": tx.name}
    tx.session.execute(update(AuditHeadRow).where(AuditHeadRow.study == end.log).values(**ended))
    if fault is not None:
        logger.critical("the audit log differs: %s", fault, extra={"study": end.log, "event": "audit-log-differs"})
    tx.shared[_ENTRY] = entry


def begin_log(coordinator: Coordinator, tx: Transaction, study: str) -> None:
    """Write the first entry of a study's log, which says who created the study."""
    created_here = ChangeRequest(Actor(kind="machine", name=""), study, "create_study")
    request = created_here if coordinator.asked is None else replace(coordinator.asked, study=study)
    write_entry(tx, coordinator.signer, request)


def naming_key(coordinator: Coordinator, key: GivenKey) -> Coordinator:
    """Return the coordinator whose entry in the log names the key that is made."""
    return coordinator if coordinator.asked is None else acting(coordinator, replace(coordinator.asked, key=key))


def log_in_study(coordinator: Coordinator, tx: Transaction, study: str | None) -> None:
    """Write the entry also in the log of the study that a key is for, once that exists: its auditor reads that one."""
    study_exists = (
        study is not None and tx.session.scalar(select(StudyRow.id).where(StudyRow.name == study)) is not None
    )
    if coordinator.asked is not None and study_exists:
        write_entry(tx, coordinator.signer, replace(coordinator.asked, study=study))


def record_operated(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    action: OperatorAction,
    account: LedgerAccount | None = None,
    **details: str,
) -> None:
    """Record in the study's ledger what a person did, so that hospitals see it. Not for its own acts.

    account  the study's, where the caller has locked it. details: client or query
    """
    request, entry = coordinator.asked, tx.shared.get(_ENTRY)
    if request is None or entry is None or not coordinator.binds_models or study.protocol < NAMED_PEOPLE:
        return
    actor = request.actor
    actor_fields: dict[str, Any] = {"actor": actor.name, "role": actor.role or actor.kind}
    anchored: dict[str, Any] = {"audit_entries": entry.sequence, "audit_sha256": entry.sha256}
    locked = account or lock_account(tx, coordinator.signer, study)
    locked.record_operated({"action": action, **actor_fields, **anchored, **details})


def read_log(coordinator: Coordinator, study: str | None, after: int, limit: int) -> AuditPage:
    """Return one page of a log with its signed head, and what is wrong with them.

    Raises:
        Rejected: `unknown-study`.
    """

    def work(tx: Transaction) -> AuditPage:
        study_exists = study is None or tx.session.scalar(select(StudyRow.id).where(StudyRow.name == study)) is not None
        if not study_exists:
            raise Rejected("unknown-study", "there is no study of this name: list the studies")
        end = _end_of(tx, study)
        entries, fault = _entries_of(tx, study, after, limit)
        reached = entries[-1].sequence if entries else after
        if fault is None and not entries and after < end.newest:
            fault = f"audit log entry {after + 1}: it is missing"
        return AuditPage(
            entries=entries,
            signed=end.signed(),
            coordinator_key=coordinator.signer.public_key,
            fault=fault or end.fault(coordinator.signer),
            next=reached if entries and reached < end.newest else None,
        )

    return coordinator.database.read("read-audit-log", work)


def _entries_of(tx: Transaction, study: str | None, after: int, limit: int) -> tuple[list[AuditEntry], str | None]:
    """Return the entries above `after`, up to the first that cannot be read, and the first fault."""
    # With the entry before the first, whose hash that one names.
    above = _ROWS.where(AuditRow.study == (study or OF_COORDINATOR), AuditRow.sequence >= after)
    entries: list[AuditEntry] = []
    reached, fault = (after, GENESIS), None
    for row in tx.session.execute(above.order_by(AuditRow.sequence).limit(limit + 1)):
        if row.sequence == after:
            reached = (after, row.sha256)
            continue
        try:
            entry = _entry_of(study, row)
        except _UNREADABLE:
            return entries, fault or f"audit log entry {row.sequence}: it cannot be read"
        if fault is None:
            try:
                reached = verify_entries([entry], study, reached)
            except AuditLogFault as found:
                fault = str(found)
        entries.append(entry)
    return entries[:limit], fault


def _entry_of(study: str | None, row: Any) -> AuditEntry:
    event = AuditEvent.model_validate(json.loads(row.event))
    return AuditEntry(study=study, sequence=row.sequence, event=event, previous=row.previous, sha256=row.sha256)


@dataclass(frozen=True)
class _End:
    """The end of a log as the database has it, which may be any values.

    log     its key in the tables
    head    row of `audit_heads`. None: there is none
    row     newest row of `audit_log`. None: the log is empty
    """

    log: str
    head: Any
    row: Any

    @property
    def newest(self) -> int:
        return 0 if self.row is None else int(self.row.sequence)

    @property
    def last(self) -> tuple[int, str]:
        """Number and hash that the next entry follows. No number is used twice, also under a lower head."""
        sha256 = GENESIS if self.row is None else self.row.sha256
        return self.newest, sha256 if isinstance(sha256, str) and is_digest(sha256) else GENESIS

    def fault(self, signer: SigningKey) -> str | None:
        """Return what is wrong with the end, in words, or None."""
        if self.head is None:
            # The log of the coordinator begins with its first change, and that of a study with its creation.
            empty = self.row is None and self.log == OF_COORDINATOR
            return None if empty else "the head of the audit log is missing"
        if self.head.entries != self.newest:
            return f"the log ends with entry {self.newest}, and its head names entry {self.head.entries}"
        return None if self.row is None else self._fault_of_newest(signer)

    def _fault_of_newest(self, signer: SigningKey) -> str | None:
        try:
            entry = _entry_of(self.log or None, self.row)
            if entry.digest() != self.head.sha256:
                return f"audit log entry {self.newest}: its content does not have the hash in the head"
            # An upgrade of the database writes one entry, and has no key to sign with.
            if self.head.signature is not None or (self.newest, entry.event.actor.kind) != (1, "unknown"):
                document = self.signed().head.model_dump(mode="json")
                verify_document(
                    decode_public_key(signer.public_key), AUDIT_HEAD, document, str(self.head.signature or "")
                )
        except SigningError:
            return "the head of the audit log is not signed by the coordinator"
        except _UNREADABLE:
            return f"audit log entry {self.newest}: it cannot be read"
        return None

    def signed(self) -> SignedAuditHead:
        """Return the head as a message. A head that cannot be read counts as one without a signature."""
        try:
            head = AuditHead(study=self.log or None, entries=self.head.entries, sha256=self.head.sha256)
            return SignedAuditHead(head=head, signature=self.head.signature)
        except WRONG_VALUE:
            return SignedAuditHead(head=AuditHead(study=self.log or None, entries=0, sha256=GENESIS), signature=None)


def _end_of(tx: Transaction, study: str | None, *, lock: bool = False) -> _End:
    # By columns: a row that was changed could not be loaded as an object.
    log = study or OF_COORDINATOR
    heads = select(AuditHeadRow.entries, AuditHeadRow.sha256, AuditHeadRow.signature).where(AuditHeadRow.study == log)
    head = tx.session.execute(heads.with_for_update() if lock else heads).one_or_none()
    newest = _ROWS.where(AuditRow.study == log).order_by(AuditRow.sequence.desc()).limit(1)
    return _End(log, head, tx.session.execute(newest).one_or_none())


def _lock_end(tx: Transaction, study: str | None) -> _End:
    end = _end_of(tx, study, lock=True)
    if end.head is not None:
        return end
    try:
        with tx.session.begin_nested():
            first = {"study": end.log, "entries": end.newest, "sha256": end.last[1], "written_by": tx.name}
            tx.session.execute(insert(AuditHeadRow).values(**first, signature=None))
    except IntegrityError:
        # Another first entry was written in the same moment.
        pass
    return _end_of(tx, study, lock=True)
