"""End collecting: charge the round before anything is made of it, or abandon it."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.plan.report import report_to_dict
from client_sdk.protocol.secure_sum.layout import UPDATE
from client_sdk.protocol.secure_sum.messages import SessionParameters
from server.db.lease import Lease
from server.db.ledger_store import Account, lock_account, precompute
from server.db.repositories import (
    append_event,
    attendance,
    find_round,
    find_study,
    lock_round,
    lock_study,
    participants,
)
from server.db.secure_sum_tables import SessionRow
from server.db.session import Transaction
from server.db.session_store import find_session
from server.db.tables import ParticipantRow, RoundRow, StudyRow
from server.domain.rounds import Abandon, Settle, close, move
from server.services.commit import commit_under_lease
from server.services.ports import Coordinator
from server.services.rounds.end import abandon_round, was_seen
from server.services.rounds.masked_report import summed_by
from server.services.rounds.report import settlement
from server.services.rounds.submit import update_scope
from server.services.secure_sum.progress import sum_words
from server.services.views import settings_of

_ENDED = ("summed", "failed")


def close_round(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """One transaction: whoever has not answered is missing, and the round's cost is settled in the ledger."""

    def work(tx: Transaction) -> None:
        row = lock_study(tx, study)
        round = lock_round(tx, row.id, number)
        rows = participants(tx, round)
        seen = attendance(rows)
        session = find_session(tx, row.id, number)
        due = seen.is_due(deadline=round.deadline, now=tx.now()) if session is None else session.phase in _ENDED
        if round.state != "collecting" or not due:
            return
        for participant in rows:
            if participant.state == "sampled":
                participant.state = "missing"
        account = lock_account(tx, coordinator.signer, study, row.id)
        ending = close(seen, min_clients=settings_of(row).schedule.min_clients)
        if session is not None and session.failure is not None:
            ending = Abandon(session.failure, charged=was_seen(tx, round))
        if isinstance(ending, Settle) and _lost(coordinator, study, rows, session):
            ending = Abandon("updates-lost", charged=True)
        if isinstance(ending, Settle) and session is not None:
            session.reported = report_to_dict(summed_by(coordinator, tx, row, session, account.budget.plan, rows))
        _end_collecting(tx, row, round, account, ending, rows)

    coordinator.database.read("precompute-settlement", lambda tx: _precompute(tx, study, number))
    commit_under_lease(coordinator, lease, "settle", work)


def _end_collecting(
    tx: Transaction,
    study: StudyRow,
    round: RoundRow,
    account: Account,
    ending: Settle | Abandon,
    rows: Sequence[ParticipantRow],
) -> None:
    match ending:
        case Abandon(reason, charged):
            abandon_round(tx, study, round, account, reason=reason, charged=charged)
        case Settle():
            account.conclude("settled", round, settlement(tx, study, round.number, rows))
            round.state = move(round.state, "settled")
            append_event(tx, study, "round-settled", round.number)


def _precompute(tx: Transaction, study: str, number: int) -> None:
    row = find_study(tx, study)
    round = find_round(tx, row.id, number)
    if round.state == "collecting":
        precompute(tx, row.id, "settled", number, settlement(tx, row, number, participants(tx, round)))


def _lost(coordinator: Coordinator, study: str, rows: Sequence[ParticipantRow], session: SessionRow | None) -> bool:
    spec = None if session is None else SessionParameters.from_bytes(session.parameters).vector(UPDATE)
    if session is not None and spec is not None:
        return sum_words(coordinator, study, session, spec) is None
    return any(
        coordinator.blobs.find(update_scope(study, row.round, row.client), row.sha256) is None
        for row in rows
        if row.sha256 is not None
    )
