"""The ways a round ends without a model, and the way a study ends. All inside the caller's transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import select

from accounting.budget.ledger import Kind
from accounting.plan.report import report_to_dict
from client_sdk.protocol.study.messages import RoundState, StopReason
from client_sdk.protocol.study.settings import StudySettings
from server.db.ledger_store import Account, Statement
from server.db.repositories import (
    append_event,
    attendance,
    find_round,
    find_session,
    findings,
    participants,
    settings_of,
)
from server.db.session import Transaction
from server.db.session_store import end_of, has_ended, load_session, lock_session, store_phase
from server.db.tables import LedgerRow, RoundRow, StudyRow
from server.domain.report import round_report
from server.domain.rounds import Abandon, Settle, move, pause_after, was_seen


def entry_of(ending: Settle | Abandon, settings: StudySettings) -> tuple[Kind, dict[str, Any]]:
    """The ledger's entry for what became of a reservation. Clients and viewers read it as soon as it is written."""
    match ending:
        case Settle(report):
            return "settled", {"report": report_to_dict(report) if _shows_reports(settings) else None}
        case Abandon(reason, charged):
            return "charged-in-full" if charged else "cancelled", {"reason": reason}


def abandon_round(
    tx: Transaction,
    study: StudyRow,
    round: RoundRow,
    account: Account,
    ending: Abandon,
    ready: Statement | None = None,
) -> None:
    """The round comes to nothing. If it is not settled yet, it is charged in full or cancelled."""
    study.abandoned_in_a_row += 1
    study.next_round_at = tx.now() + pause_after(study.abandoned_in_a_row)
    _end(tx, study, round, account, "abandoned", ending, ready)


def stop_round(tx: Transaction, study: StudyRow, round: RoundRow, account: Account) -> None:
    """The operator stops the study in the middle of a round: what was let in is paid for, nothing is released."""
    session = lock_session(tx, study.id, round.number)
    present = attendance(tx, participants(tx, round), session)
    charged = was_seen(present, None if session is None else end_of(session))
    if session is not None and not has_ended(session):
        # What is not opened yet must never be, since the ledger may give the charge back.
        store_phase(session, replace(load_session(tx, session), phase="failed", failure="stopped"))
    _end(tx, study, round, account, "stopped", Abandon("stopped", charged))


def finish(tx: Transaction, study: StudyRow, account: Account, reason: StopReason) -> None:
    """No round after this."""
    account.record("finished", None, {"reason": reason, **_withheld(tx, study)})
    study.state, study.stop_reason = "finished", reason
    append_event(tx, study, "study-finished")


def _end(
    tx: Transaction,
    study: StudyRow,
    round: RoundRow,
    account: Account,
    state: RoundState,
    ending: Abandon,
    ready: Statement | None = None,
) -> None:
    if round.state != "settled":
        kind, body = entry_of(ending, settings_of(study))
        account.conclude(kind, round, body, ready)
    round.state = move(round.state, state)
    round.reason, round.ended_at = ending.reason, tx.now()
    append_event(tx, study, f"round-{state}", round.number)


def _shows_reports(settings: StudySettings) -> bool:
    """Whether each round's report is written down as it happens, and acted on."""
    return settings.privacy.disclosure != "at-end"


def _withheld(tx: Transaction, study: StudyRow) -> dict[str, Any]:
    """Disclosure `at-end`: the report of every charged round in order, for the ledger's last entry; else nothing."""
    settings = settings_of(study)
    if _shows_reports(settings) or settings.privacy.bayesian is None:
        return {}
    charged = select(LedgerRow).where(
        LedgerRow.study_id == study.id, LedgerRow.kind.in_(("settled", "charged-in-full"))
    )
    entries = tx.session.scalars(charged.order_by(LedgerRow.sequence))
    return {"report": [_report_behind(tx, study, settings, entry) for entry in entries]}


def _report_behind(
    tx: Transaction, study: StudyRow, settings: StudySettings, entry: LedgerRow
) -> dict[str, Any] | None:
    if entry.kind == "charged-in-full" or entry.round is None:
        return None
    session = find_session(tx, study.id, entry.round)
    if session is not None:
        return session.reported
    rows = participants(tx, find_round(tx, study.id, entry.round))
    return report_to_dict(round_report(settings, findings(rows), attendance(tx, rows, None)))
