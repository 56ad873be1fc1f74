"""The ledger and the budget row that stands for all of it, changed together or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import select

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, Kind, append
from accounting.plan.plan import Plan
from client_sdk.protocol.study.messages import LedgerHead
from client_sdk.protocol.wire.signing import LEDGER_HEAD, canonical_json
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow, RoundRow
from server.signing_key import SigningKey


@dataclass(frozen=True)
class Statement:
    """What a budget in `state` shows. Slow where reports are tight, so computed while nothing is locked."""

    state: Mapping[str, Any]
    limits: list[Any]
    percentiles: list[Any]

    @classmethod
    def of(cls, budget: Budget) -> Self:
        """Computed now, from every account."""
        return cls(budget.state(), budget.statements(), budget.percentiles())


@dataclass
class Account:
    """One study's budget inside one transaction, its row locked."""

    tx: Transaction
    signer: SigningKey
    study: str
    row: BudgetRow
    budget: Budget
    newest: Entry

    def record(self, kind: Kind, round: int | None, body: Mapping[str, Any], ready: Statement | None = None) -> None:
        """Apply one event to the budget, append it, and write the statement and the signed head beside it.

        `ready`: the statement as `statement_after` found it; used if it is still that of the budget's state.

        Raises:
            accounting.LedgerError: the event cannot happen now; nothing is written.
        """
        entry = append(self.newest, kind, round, body)
        # Before the row is added: an event that cannot happen raises here and leaves nothing behind.
        self.budget.apply(entry)
        self.tx.session.add(_ledger_row(self.tx, self.row.study_id, entry))
        self.newest = entry
        _write_statement(self.row, self.budget, ready)
        _sign(self.row, self.signer, self.study, entry)

    def conclude(self, kind: Kind, round: RoundRow, body: Mapping[str, Any], ready: Statement | None = None) -> None:
        """Record what became of a round's reservation, and beside the round what every limit has spent by then.

        Raises:
            accounting.LedgerError: as `record`.
        """
        self.record(kind, round.number, body, ready)
        shown = ("level", "definition", "epsilon", "spent")
        # A level that nothing protects is stated with no ε: there is nothing it could have spent.
        limited = [limit for limit in self.row.limits if limit["epsilon"] is not None]
        round.spent = [{name: limit[name] for name in shown} for limit in limited]


def open_account(tx: Transaction, signer: SigningKey, study: str, study_id: int, plan: Plan) -> None:
    """Start the ledger of a new study. The caller has made sure that one round fits (`Budget.open`)."""
    entry = append(None, "opened", None, {"study": study, "plan": plan.to_dict()})
    row = BudgetRow(study_id=study_id, plan=plan.to_dict(), max_steps=plan.max_steps)
    _write_statement(row, Budget(plan))
    _sign(row, signer, study, entry)
    tx.session.add(_ledger_row(tx, study_id, entry))
    tx.session.add(row)


def lock_account(tx: Transaction, signer: SigningKey, study: str, study_id: int) -> Account:
    """The study's account; nobody else can change it before this transaction ends."""
    row = tx.session.get_one(BudgetRow, study_id, with_for_update=True)
    newest = tx.session.get_one(LedgerRow, (study_id, row.entries))
    budget = Budget.restore(Plan.from_dict(row.plan), row.state)
    return Account(tx, signer, study, row, budget, entry_of(newest))


def statement_after(
    tx: Transaction, study_id: int, kind: Kind, round: int | None, body: Mapping[str, Any]
) -> Statement:
    """What the budget will show once this event is recorded."""
    row = tx.session.get_one(BudgetRow, study_id)
    budget = Budget.restore(Plan.from_dict(row.plan), row.state)
    budget.apply(append(entry_of(tx.session.get_one(LedgerRow, (study_id, row.entries))), kind, round, body))
    return Statement.of(budget)


def entries(tx: Transaction, study_id: int, after: int, limit: int) -> list[Entry]:
    """At most `limit` entries above `after`, in order."""
    wanted = select(LedgerRow).where(LedgerRow.study_id == study_id, LedgerRow.sequence > after)
    return [entry_of(row) for row in tx.session.scalars(wanted.order_by(LedgerRow.sequence).limit(limit))]


def entry_of(row: LedgerRow) -> Entry:
    """The entry as it was hashed."""
    content = {"sequence": row.sequence, "kind": row.kind, "round": row.round, "body": json.loads(row.body)}
    return Entry.from_dict({**content, "previous": row.previous, "sha256": row.sha256})


def _ledger_row(tx: Transaction, study_id: int, entry: Entry) -> LedgerRow:
    return LedgerRow(
        study_id=study_id,
        sequence=entry.sequence,
        kind=entry.kind,
        round=entry.round,
        # As text: a JSON column gives back equal values, not the bytes that were hashed.
        body=canonical_json(entry.body).decode(),
        previous=entry.previous,
        sha256=entry.sha256,
        written_at=tx.now(),
    )


def _write_statement(row: BudgetRow, budget: Budget, ready: Statement | None = None) -> None:
    row.state = budget.state()
    # While a round is under way the question has been answered: it may go on.
    row.can_continue = budget.pending is not None or budget.authorise().allowed
    row.round = budget.last_round
    # Something may have been recorded since `ready` was computed.
    shown = ready if ready is not None and ready.state == row.state else Statement.of(budget)
    row.limits, row.percentiles = shown.limits, shown.percentiles


def _sign(row: BudgetRow, signer: SigningKey, study: str, entry: Entry) -> None:
    head = LedgerHead(study=study, entries=entry.sequence, sha256=entry.sha256)
    row.entries, row.head_sha256 = entry.sequence, entry.sha256
    row.signature = signer.sign(LEDGER_HEAD, head.model_dump(mode="json"))
