"""The rows that a budget's statement depends on, byte for byte as they are stored: equal ones need no second check."""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import JSON, Table, Text, bindparam, cast, select

from server.db.session import Transaction
from server.db.tables import BudgetRow, ClientRow, LedgerRow, StudyRow

RawRows: TypeAlias = tuple[tuple[Any, ...], ...]


def _columns(*tables: Any) -> list[Any]:
    # Every column of every table, so that none is forgotten. JSON as text: parsing it would cost more than all else.
    columns = [column for table in tables for column in table.columns]
    return [cast(column, Text) if isinstance(column.type, JSON) else column for column in columns]


def _of(row: Any) -> Table:
    return row.__table__


_STUDIES, _BUDGETS, _LEDGER, _CLIENTS = _of(StudyRow), _of(BudgetRow), _of(LedgerRow), _of(ClientRow)
_STUDY = (
    select(*_columns(_STUDIES, _BUDGETS, _LEDGER))
    .join_from(_STUDIES, _BUDGETS, _BUDGETS.c.study_id == _STUDIES.c.id)
    .join(_LEDGER, _LEDGER.c.study_id == _STUDIES.c.id)
    .where(_STUDIES.c.name == bindparam("study"))
    .order_by(_LEDGER.c.sequence.desc())
    .limit(1)
)
_MEMBERS = (
    select(*_columns(_CLIENTS))
    .join_from(_CLIENTS, _STUDIES, _CLIENTS.c.study_id == _STUDIES.c.id)
    .where(_STUDIES.c.name == bindparam("study"))
    .order_by(_CLIENTS.c.name)
)


def raw_rows(tx: Transaction, study: str) -> RawRows:
    """Return the study, its budget, the newest entry of its ledger and all its members. Empty if there is no study."""
    results = [tx.session.execute(statement, {"study": study}).all() for statement in (_STUDY, _MEMBERS)]
    return tuple(tuple(row) for rows in results for row in rows)
