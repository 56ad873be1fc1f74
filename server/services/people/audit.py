"""The audit log: its entry is written in the transaction of the change, or neither is."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from accounting.budget.bodies import OperatorAction
from accounting.budget.ledger import GENESIS
from server.db.ledger_store import LedgerAccount, lock_account
from server.db.people_tables import OF_COORDINATOR, AuditHeadRow, AuditRow
from server.db.row_checks import RowBroken
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
from study_protocol.versions import NAMED_PEOPLE
from study_protocol.wire.signing import SigningError, canonical_json, decode_public_key, verify_document

logger = logging.getLogger("wardround.coordinator")
# The entry of this transaction.
_ENTRY = "audit-entry"
_UNREADABLE = (ValidationError, ValueError, TypeError, RecursionError, RowBroken)


def acting(coordinator: Coordinator, request: ChangeRequest) -> Coordinator:
    """Return the coordinator as it serves this request: what it writes has an entry in the audit log."""

    def begin(tx: Transaction) -> None:
        write_entry(tx, coordinator.signer, request)

    return replace(coordinator, database=coordinator.database.beginning_with(begin), asked=request)


def write_entry(tx: Transaction, signer: SigningKey, request: ChangeRequest) -> None:
    """Append an entry to its log, in the transaction of the change.

    A log whose end is not what was signed goes on without a signature: a hospital must be able to leave, and a study to
    be stopped. Who reads the log is told.
    """
    head = _lock_head(tx, request.study)
    fault = _fault_of_head(tx, signer, head)
    event = AuditEvent(
        at=at(tx.now()),
        actor=request.actor,
        action=request.action,
        address=request.address,
        request_id=request.request_id,
        body_sha256=request.body_sha256,
    )
    entry = next_entry(request.study, (head.entries, head.sha256), event)
    text = canonical_json(event.model_dump(mode="json")).decode()
    row = AuditRow(study=head.study, sequence=entry.sequence, event=text, previous=entry.previous, sha256=entry.sha256)
    tx.session.add(row)
    head.entries, head.sha256 = entry.sequence, entry.sha256
    head.signature = signer.sign(AUDIT_HEAD, _head_of(head).model_dump(mode="json")) if fault is None else None
    if fault is not None:
        logger.critical("the audit log differs: %s", fault, extra={"study": head.study, "event": "audit-log-differs"})
    tx.shared[_ENTRY] = entry


def begin_log(coordinator: Coordinator, tx: Transaction, study: str) -> None:
    """Write the first entry of a study's log, which says who created the study."""
    created_here = ChangeRequest(Actor(kind="machine", name=""), study, "create_study")
    asked = created_here if coordinator.asked is None else replace(coordinator.asked, study=study)
    write_entry(tx, coordinator.signer, asked)


def record_operated(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    action: OperatorAction,
    account: LedgerAccount | None = None,
    **details: str,
) -> None:
    """Record in the study's ledger what a person did, so that hospitals see it. Nothing for acts of the coordinator.

    account  the study's, where the caller has locked it. details: client or query
    """
    asked, entry = coordinator.asked, tx.shared.get(_ENTRY)
    if asked is None or entry is None or not coordinator.binds_models or study.protocol < NAMED_PEOPLE:
        return
    actor = asked.actor
    named: dict[str, Any] = {"actor": actor.name, "role": actor.role or actor.kind}
    anchored: dict[str, Any] = {"audit_entries": entry.sequence, "audit_sha256": entry.sha256}
    locked = account or lock_account(tx, coordinator.signer, study)
    locked.record_operated({"action": action, **named, **anchored, **details})


def read_log(coordinator: Coordinator, study: str | None, after: int, limit: int) -> AuditPage:
    """Return one page of a log with its signed head, and what is wrong with them.

    Raises:
        Rejected: `unknown-study`.
    """

    def work(tx: Transaction) -> AuditPage:
        name = study or OF_COORDINATOR
        head = tx.session.get(AuditHeadRow, name)
        if head is None:
            return _without_head(coordinator, tx, study)
        above = select(AuditRow).where(AuditRow.study == name, AuditRow.sequence >= after)
        rows = tx.session.scalars(above.order_by(AuditRow.sequence).limit(limit + 1)).all()
        entries, fault = _entries_of(study, rows, after)
        reached = entries[-1].sequence if entries else after
        if fault is None and not entries and after < head.entries:
            fault = f"audit log entry {after + 1}: it is missing"
        more = reached if entries and reached < head.entries else None
        signed = SignedAuditHead(head=_head_of(head), signature=head.signature)
        found = fault or _fault_of_head(tx, coordinator.signer, head)
        key = coordinator.signer.public_key
        return AuditPage(entries=entries, signed=signed, coordinator_key=key, fault=found, next=more)

    return coordinator.database.read("read-audit-log", work)


def _without_head(coordinator: Coordinator, tx: Transaction, study: str | None) -> AuditPage:
    if study is not None and tx.session.scalar(select(StudyRow.id).where(StudyRow.name == study)) is None:
        raise Rejected("unknown-study", "there is no study of this name: list the studies")
    head = AuditHead(study=study, entries=0, sha256=GENESIS)
    # The log of the coordinator begins with its first change. That of a study begins with its creation.
    fault = None if study is None else "the head of the audit log is missing"
    signed, key = SignedAuditHead(head=head, signature=None), coordinator.signer.public_key
    return AuditPage(entries=[], signed=signed, coordinator_key=key, fault=fault)


def _entries_of(study: str | None, rows: Sequence[AuditRow], after: int) -> tuple[list[AuditEntry], str | None]:
    """Return the entries above `after`, and the first fault. `rows` begin with that entry, which the next names."""
    entries: list[AuditEntry] = []
    reached, fault = (after, GENESIS), None
    for row in rows:
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
    return entries, fault


def _entry_of(study: str | None, row: AuditRow) -> AuditEntry:
    event = AuditEvent.model_validate(json.loads(row.event))
    return AuditEntry(study=study, sequence=row.sequence, event=event, previous=row.previous, sha256=row.sha256)


def _lock_head(tx: Transaction, study: str | None) -> AuditHeadRow:
    name = study or OF_COORDINATOR
    head = tx.session.get(AuditHeadRow, name, with_for_update=True)
    if head is not None:
        return head
    try:
        with tx.session.begin_nested():
            head = AuditHeadRow(study=name, entries=0, sha256=GENESIS, signature=None)
            tx.session.add(head)
            tx.session.flush()
        return head
    except IntegrityError:
        # Another first entry was written in the same moment.
        return tx.session.get_one(AuditHeadRow, name, with_for_update=True)


def _fault_of_head(tx: Transaction, signer: SigningKey, head: AuditHeadRow) -> str | None:
    """Return what is wrong with the end of a log, in words, or None."""
    newest = tx.session.scalar(select(func.max(AuditRow.sequence)).where(AuditRow.study == head.study)) or 0
    if newest != head.entries:
        return f"the log ends with entry {newest}, and its head names entry {head.entries}"
    if head.entries == 0:
        return None
    try:
        entry = _entry_of(head.study or None, tx.session.get_one(AuditRow, (head.study, head.entries)))
        if entry.digest() != head.sha256:
            return f"audit log entry {head.entries}: its content does not have the hash in the head"
        # An upgrade of the database writes one entry, and has no key to sign with.
        if head.signature is None and head.entries == 1 and entry.event.actor.kind == "unknown":
            return None
        document = _head_of(head).model_dump(mode="json")
        verify_document(decode_public_key(signer.public_key), AUDIT_HEAD, document, head.signature or "")
    except SigningError:
        return "the head of the audit log is not signed by the coordinator"
    except _UNREADABLE:
        return f"audit log entry {head.entries}: it cannot be read"
    return None


def _head_of(head: AuditHeadRow) -> AuditHead:
    return AuditHead(study=head.study or None, entries=head.entries, sha256=head.sha256)
