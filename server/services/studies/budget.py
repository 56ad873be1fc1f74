"""What is spent, what is left: one row, however long the ledger."""

from __future__ import annotations

from client_sdk.protocol.study.messages import (
    BudgetLedger,
    BudgetStatement,
    LedgerEntry,
    LedgerPage,
    LimitStatement,
    Percentile,
    SignedLedgerHead,
)
from server.db.ledger_store import entries
from server.db.repositories import find_study
from server.db.session import Transaction
from server.db.tables import BudgetRow, StudyRow
from server.services.coordinator import Coordinator
from server.services.views import ledger_head


def read_budget(coordinator: Coordinator, study: str) -> BudgetStatement:
    """Raises Rejected `unknown-study`."""

    def work(tx: Transaction) -> BudgetStatement:
        row = find_study(tx, study)
        return _statement(row, tx.session.get_one(BudgetRow, row.id))

    return coordinator.database.read("read-budget", work)


def read_ledger(coordinator: Coordinator, study: str, after: int = 0, limit: int = 500) -> LedgerPage:
    """Entries `after` + 1 and following with the signed head of the whole ledger. Raises Rejected `unknown-study`."""

    def work(tx: Transaction) -> LedgerPage:
        study_id = find_study(tx, study).id
        row = tx.session.get_one(BudgetRow, study_id)
        page = entries(tx, study_id, after, limit)
        last = page[-1].sequence if page else row.entries
        return LedgerPage(
            entries=[LedgerEntry.model_validate(entry.to_dict()) for entry in page],
            head=SignedLedgerHead(head=ledger_head(study, row), signature=row.signature),
            next=str(last) if last < row.entries else None,
        )

    return coordinator.database.read("read-ledger", work)


def _statement(study: StudyRow, row: BudgetRow) -> BudgetStatement:
    return BudgetStatement(
        study=study.name,
        state=study.state,
        round=row.round,
        max_steps=row.max_steps,
        can_continue=row.can_continue,
        stop_reason=study.stop_reason,
        limits=[LimitStatement.model_validate(limit) for limit in row.limits],
        percentiles=[Percentile.model_validate(percentile) for percentile in row.percentiles],
        ledger=BudgetLedger(entries=row.entries, head=f"sha256:{row.head_sha256}", signature=row.signature),
    )
