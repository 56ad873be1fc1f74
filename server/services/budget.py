"""What is spent, what is left: one row, however long the ledger."""

from __future__ import annotations

from client_sdk.protocol.messages import BudgetStatement, LedgerPage
from server.services.ports import Coordinator


def read_budget(coordinator: Coordinator, study: str) -> BudgetStatement:
    """Raises Rejected `unknown-study`."""
    raise NotImplementedError


def read_ledger(coordinator: Coordinator, study: str, after: int = 0, limit: int = 500) -> LedgerPage:
    """Entries `after` + 1 and following with the signed head of the whole ledger. Raises Rejected `unknown-study`."""
    raise NotImplementedError
