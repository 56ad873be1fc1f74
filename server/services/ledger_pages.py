"""The ledger, page by page. In every round all hospitals ask for the same page: it is put together once."""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from server.db import rows
from server.db.ledger_store import entries
from server.db.session import Transaction
from server.db.tables import BudgetRow, StudyRow, WitnessRow
from server.db.witness_store import witnesses
from server.domain.study import unknown_study
from server.services.coordinator import Coordinator
from server.services.views import ledger_head
from study_protocol.study.messages import LedgerEntry, LedgerPage, SignedLedgerHead


# The inputs of a page. The number of signed heads and their positions tell a change, for a head only moves on.
def _signed(column: Any) -> Any:
    return select(column).where(WitnessRow.study_id == BudgetRow.study_id).correlate(BudgetRow).scalar_subquery()


_STATE: Select[*tuple[Any, ...]] = (
    select(StudyRow.state, BudgetRow.entries, BudgetRow.head_sha256, BudgetRow.signature)
    .add_columns(_signed(func.count()), _signed(func.sum(WitnessRow.entries)), _signed(func.max(WitnessRow.public_key)))
    .join_from(StudyRow, BudgetRow, BudgetRow.study_id == StudyRow.id)
    .where(StudyRow.name == bindparam("study"))
)
_PAGES = 64
_MAKING = threading.Lock()


def read_ledger(coordinator: Coordinator, study: str, after: int = 0, limit: int = 500) -> bytes:
    """As `ledger_page`, as JSON. Raises Rejected `unknown-study`."""
    state_rows = coordinator.database.look(_STATE, {"study": study})
    if not state_rows:
        raise unknown_study()
    state, page = tuple(state_rows[0]), (study, after, limit)
    cached = coordinator.pages.get(page)
    if cached is not None and cached[0] == state:
        return cached[1]
    # All clients come at once: one request makes it, the others wait for it.
    with _MAKING:
        cached = coordinator.pages.get(page)
        if cached is not None and cached[0] == state:
            return cached[1]
        body = ledger_page(coordinator, study, after, limit).model_dump_json().encode()
        # Made after the state was read: it may be newer than that, and is then made again for the next who asks.
        coordinator.pages[page] = state, body
        while len(coordinator.pages) > _PAGES:
            coordinator.pages.pop(next(iter(coordinator.pages)))
        return body


def ledger_page(coordinator: Coordinator, study: str, after: int = 0, limit: int = 500) -> LedgerPage:
    """Return entries `after` + 1 and following with the signed head of the whole ledger.

    Raises Rejected `unknown-study`.
    """

    def work(tx: Transaction) -> LedgerPage:
        study_row = rows.find_study(tx, study)
        study_id = study_row.id
        # In the transaction of the entries, or the head might be of another length.
        row = tx.session.get_one(BudgetRow, study_id)
        page = entries(tx, study_id, after, limit)
        last = page[-1].sequence if page else row.entries
        return LedgerPage(
            entries=[LedgerEntry.model_validate(entry.to_dict()) for entry in page],
            head=SignedLedgerHead(head=ledger_head(study, row), signature=row.signature),
            witnesses=witnesses(tx, study_row),
            next=last if last < row.entries else None,
        )

    return coordinator.database.read("read-ledger", work)
