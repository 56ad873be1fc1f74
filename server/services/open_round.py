"""Authorise, reserve, sample: the next round begins, or the study ends because it may not."""

from __future__ import annotations

from server.db.lease import Lease
from server.db.ledger_store import lock_account, rehearse
from server.db.repositories import append_event, clients, latest_model, lock_study, open_round
from server.db.session import Transaction
from server.db.tables import BudgetRow, ParticipantRow, RoundRow, StudyRow
from server.domain.sampling import sample
from server.services import fenced
from server.services.end_round import finish
from server.services.ports import Coordinator
from server.services.views import settings_of


def begin_round(coordinator: Coordinator, lease: Lease, study: str) -> None:
    """One transaction: the worst case is reserved in the ledger together with the sample and the deadline."""

    def work(tx: Transaction) -> None:
        row = lock_study(tx, study)
        if row.state != "running" or open_round(tx, row.id) is not None:
            return
        account = lock_account(tx, coordinator.signer, study, row.id)
        authorisation = account.budget.authorise()
        if authorisation.reason is not None:
            finish(tx, row, account, authorisation.reason)
            return
        active = [client.name for client in clients(tx, row.id) if client.state == "active"]
        if len(active) < row.quorum:
            return
        number = account.budget.last_round + 1
        account.record("reserved", number, {})
        rate = settings_of(row).privacy.client_sampling_rate
        _write_round(tx, row, number, sample(active, rate, coordinator.coins.heads))

    coordinator.database.read("rehearse-reservation", lambda tx: _rehearse(tx, lease.study_id))
    fenced.commit(coordinator, lease, "reserve", work)


def _rehearse(tx: Transaction, study_id: int) -> None:
    row = tx.session.get_one(BudgetRow, study_id)
    if row.can_continue:
        rehearse(tx, study_id, "reserved", row.round + 1, {})


def _write_round(tx: Transaction, study: StudyRow, number: int, sampled: list[str]) -> None:
    base = latest_model(tx, study.id)
    if base is None:
        raise LookupError("a running study has no model: restore the database from its backup")
    row = RoundRow(
        study_id=study.id,
        number=number,
        state="collecting",
        base_version=base.version,
        started_at=tx.now(),
        deadline=tx.now() + settings_of(study).schedule.round_deadline_seconds,
    )
    tx.session.add(row)
    tx.session.flush()
    tx.session.add_all(
        ParticipantRow(study_id=study.id, round=number, client=client, state="sampled") for client in sampled
    )
    append_event(tx, study, "round-opened", number)
