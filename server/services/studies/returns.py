"""A study that paused for want of hospitals resumes by itself once enough of them ask for rounds again."""

from __future__ import annotations

import logging

from sqlalchemy import select

from server.db import rows
from server.db.ledger_store import require_unchanged
from server.db.session import Transaction
from server.db.tables import LedgerRow, ParticipantRow, RoundRow, StudyRow
from server.domain.study import resumes_alone
from server.services.coordinator import Coordinator
from server.services.tampered_studies import stopping_where_rows_differ
from study_protocol.study.reasons import HOSPITALS_MISSING

# More than the longest wait for an assignment, after which a hospital asks again.
_PRESENT_SECONDS = 90.0
_AGAIN_SECONDS = 5.0
logger = logging.getLogger("wardround.coordinator")


def note_return(coordinator: Coordinator, study: str, client: str) -> None:
    """Note that the hospital asks for a round while the study is paused for want of hospitals. Resume if it may."""

    def is_due(tx: Transaction) -> bool:
        row = rows.find_study(tx, study)
        member = rows.find_client(tx, row.id, client)
        noted = None if member is None else member.seen_at
        return member is not None and (noted is None or noted < max(row.state_since, tx.now() - _AGAIN_SECONDS))

    def work(tx: Transaction) -> None:
        row = rows.lock_study(tx, study)
        member = rows.find_client(tx, row.id, client)
        if row.pause_reason not in HOSPITALS_MISSING or member is None:
            return
        member.seen_at = tx.now()
        tx.session.flush()
        paused_seconds = tx.now() - row.state_since
        may_resume = resumes_alone(
            row.pause_reason, earlier=row.resumed_alone, charged=_charged(tx, row), paused_seconds=paused_seconds
        )
        if not may_resume or len(_present(tx, row)) < row.quorum:
            return
        require_unchanged(tx, coordinator.signer, row)
        row.abandoned_in_a_row, row.next_round_at, row.resumed_alone = 0, 0.0, row.resumed_alone + 1
        row.resumed_at = tx.now()
        rows.append_event(tx, row, "hospitals-returned")
        rows.enter_state(tx, row, "running")
        logger.warning("resumed: enough hospitals are back", extra={"study": study, "event": "hospitals-returned"})

    # First without a lock: hospitals ask for rounds all the time.
    if coordinator.database.read("find-return", is_due):
        stopping_where_rows_differ(coordinator, lambda: coordinator.database.write("note-return", work))


def _present(tx: Transaction, study: StudyRow) -> set[str]:
    """Return the active hospitals that asked for a round since the pause began, and refused none of the last."""
    last = select(RoundRow.number).where(RoundRow.study_id == study.id, RoundRow.query.is_(None))
    number = tx.session.scalar(last.order_by(RoundRow.number.desc()).limit(1)) or 0
    refused = set(
        tx.session.scalars(
            select(ParticipantRow.client).where(
                ParticipantRow.study_id == study.id, ParticipantRow.round == number, ParticipantRow.state == "refused"
            )
        )
    )
    since = max(study.state_since, tx.now() - _PRESENT_SECONDS)
    return {
        member.name
        for member in rows.clients(tx, study.id)
        if member.state == "active" and member.seen_at is not None and member.seen_at >= since
    } - refused


def _charged(tx: Transaction, study: StudyRow) -> bool:
    """Return whether one of the rounds of training that failed before this pause was charged."""
    failed = select(RoundRow.number).where(
        RoundRow.study_id == study.id, RoundRow.state == "abandoned", RoundRow.query.is_(None)
    )
    numbers = failed.order_by(RoundRow.number.desc()).limit(study.abandoned_in_a_row)
    charged = select(LedgerRow.sequence).where(
        LedgerRow.study_id == study.id, LedgerRow.kind == "charged-in-full", LedgerRow.round.in_(numbers)
    )
    return tx.session.scalar(charged.limit(1)) is not None
