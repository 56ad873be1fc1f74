"""The ways a round ends without a model, and the way a study ends. All inside the caller's transaction."""

from __future__ import annotations

from dataclasses import replace

from client_sdk.protocol.study.messages import RoundState, StopReason
from server.db.ledger_store import Account
from server.db.repositories import append_event, attendance, participants
from server.db.session import Transaction
from server.db.session_store import find_session, load_session, lock_session, masks_updates, store_phase
from server.db.tables import RoundRow, StudyRow
from server.domain.rounds import move, pause_after
from server.services.rounds.report import withheld


def abandon_round(
    tx: Transaction, study: StudyRow, round: RoundRow, account: Account, *, reason: str, charged: bool
) -> None:
    """The round comes to nothing. If it is not settled yet, it is charged in full or cancelled."""
    if round.state != "settled":
        account.conclude("charged-in-full" if charged else "cancelled", round, {"reason": reason})
    study.abandoned_in_a_row += 1
    study.next_round_at = tx.now() + pause_after(study.abandoned_in_a_row)
    _end(tx, study, round, "abandoned", reason)


def stop_round(tx: Transaction, study: StudyRow, round: RoundRow, account: Account) -> None:
    """The operator stops the study in the middle of a round: what was let in is paid for, nothing is released."""
    if round.state != "settled":
        account.conclude("charged-in-full" if was_seen(tx, round) else "cancelled", round, {"reason": "stopped"})
    _close_session(tx, round)
    _end(tx, study, round, "stopped", "stopped")


def _close_session(tx: Transaction, round: RoundRow) -> None:
    """Take no more messages: what is not opened yet must never be, since the ledger may give the charge back."""
    row = lock_session(tx, round.study_id, round.number)
    if row is not None and row.phase not in ("summed", "failed"):
        store_phase(row, replace(load_session(tx, row), phase="failed", failure="stopped"))


def was_seen(tx: Transaction, round: RoundRow) -> bool:
    """Whether somebody may know something of the round: bytes of a clear update, or opened shares of masked ones."""
    session = find_session(tx, round.study_id, round.number)
    if session is not None and session.opened:
        return True
    clear = session is None or not masks_updates(session)
    return clear and bool(attendance(participants(tx, round)).sending)


def finish(tx: Transaction, study: StudyRow, account: Account, reason: StopReason) -> None:
    """No round after this."""
    account.record("finished", None, {"reason": reason, **withheld(tx, study)})
    study.state, study.stop_reason = "finished", reason
    append_event(tx, study, "study-finished")


def _end(tx: Transaction, study: StudyRow, round: RoundRow, state: RoundState, reason: str) -> None:
    round.state = move(round.state, state)
    round.reason, round.ended_at = reason, tx.now()
    append_event(tx, study, f"round-{state}", round.number)
