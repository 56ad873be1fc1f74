"""End collecting: charge the round before anything is made of it, or abandon it."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.plan import Plan
from server.db.lease import Lease
from server.db.ledger_store import Account, lock_account, rehearse
from server.db.repositories import (
    append_event,
    attendance,
    find_round,
    find_study,
    lock_round,
    lock_study,
    participants,
)
from server.db.session import Transaction
from server.db.tables import BudgetRow, ParticipantRow, RoundRow, StudyRow
from server.domain.rounds import Abandon, Settle, close, move
from server.services import fenced
from server.services.end_round import abandon_round
from server.services.evidence import settlement
from server.services.ports import Coordinator
from server.services.submit_update import update_scope
from server.services.views import settings_of


def close_round(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """One transaction: whoever has not answered is missing, and the round's cost is settled in the ledger."""

    def work(tx: Transaction) -> None:
        row = lock_study(tx, study)
        round = lock_round(tx, row.id, number)
        rows = participants(tx, round)
        seen = attendance(rows)
        if round.state != "collecting" or not seen.is_due(deadline=round.deadline, now=tx.now()):
            return
        for participant in rows:
            if participant.state == "sampled":
                participant.state = "missing"
        account = lock_account(tx, coordinator.signer, study, row.id)
        ending = close(seen, min_clients=settings_of(row).schedule.min_clients)
        if isinstance(ending, Settle) and _lost(coordinator, study, rows):
            ending = Abandon("updates-lost", charged=True)
        _end_collecting(tx, row, round, account, ending, rows)

    coordinator.database.read("rehearse-settlement", lambda tx: _rehearse(tx, study, number))
    fenced.commit(coordinator, lease, "settle", work)


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
            account.record("settled", round.number, settlement(study, account.budget.plan, rows))
            round.state = move(round.state, "settled")
            append_event(tx, study, "round-settled", round.number)


def _rehearse(tx: Transaction, study: str, number: int) -> None:
    row = find_study(tx, study)
    round = find_round(tx, row.id, number)
    if round.state == "collecting":
        plan = Plan.from_dict(tx.session.get_one(BudgetRow, row.id).plan)
        rehearse(tx, row.id, "settled", number, settlement(row, plan, participants(tx, round)))


def _lost(coordinator: Coordinator, study: str, rows: Sequence[ParticipantRow]) -> bool:
    return any(
        coordinator.blobs.find(update_scope(study, row.round, row.client), row.sha256) is None
        for row in rows
        if row.sha256 is not None
    )
