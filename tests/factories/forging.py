"""What somebody does who has the database and not the coordinator's key."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sqlalchemy import text

from server.db.session import Transaction
from server.services.coordinator import Coordinator

T = TypeVar("T")


class _Undone(Exception):
    """Takes a change back."""


def forge(coordinator: Coordinator, statement: str, **values: object) -> None:
    """One statement; of the ledger only once its triggers are gone."""

    coordinator.database.write("forge", lambda tx: _execute(tx, statement, values))


def while_forged(coordinator: Coordinator, statement: str, look: Callable[[Transaction], T]) -> T:
    """What `look` finds in the same transaction; then the change is taken back, so that one study serves many."""
    found = list[T]()

    def forged(tx: Transaction) -> None:
        _execute(tx, statement, {})
        tx.session.expire_all()
        found.append(look(tx))
        raise _Undone

    with suppress(_Undone):
        coordinator.database.write("forge", forged)
    return found[0]


def _execute(tx: Transaction, statement: str, values: dict[str, object]) -> None:
    if " ledger" in statement:
        drop_triggers(tx)
    tx.session.execute(text(statement), values)


def drop_triggers(tx: Transaction) -> None:
    """Of the ledger, which otherwise takes no change."""
    if tx.session.get_bind().dialect.name == "sqlite":
        found = tx.session.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
        for name in found:
            tx.session.execute(text(f"DROP TRIGGER {name}"))
    else:
        tx.session.execute(text("ALTER TABLE ledger DISABLE TRIGGER USER"))
