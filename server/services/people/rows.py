"""Rows of people. A row that no program of ours wrote is refused, and no list shows it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, bindparam, select
from sqlalchemy.exc import NoResultFound

from server.db.people_tables import ApiKeyRow, LoginSessionRow
from server.db.row_checks import RowBroken, require_row
from server.db.session import Transaction

logger = logging.getLogger("wardround.coordinator")
R = TypeVar("R", ApiKeyRow, LoginSessionRow)


def find_sound(tx: Transaction, kind: type[ApiKeyRow] | type[LoginSessionRow], row_id: str) -> Any:
    """Return the columns of a row, or None where there is none, or a broken one."""
    # Of columns, not of an object: every request of a person begins here.
    try:
        row = tx.session.execute(_by_id(kind), {"id": row_id}).one_or_none()
        if row is not None:
            require_row(kind, dict(zip(kind.__table__.columns.keys(), row, strict=True)))
    except (RowBroken, ValueError) as broken:
        # A ValueError is of a document that is no JSON. Its text may quote it.
        words = broken if isinstance(broken, RowBroken) else f"{kind.__tablename__} holds no JSON"
        logger.error("refused: %s", words, extra={"event": "database-differs"})
        return None
    return row


@cache
def _by_id(kind: type[ApiKeyRow] | type[LoginSessionRow]) -> Select[Any]:
    return select(*kind.__table__.columns).where(kind.id == bindparam("id"))


def sound_rows(tx: Transaction, kind: type[R], *rules: ColumnElement[bool]) -> Iterator[R]:
    """Yield rows in the order of their making, without broken ones, or the others could not be seen and ended."""
    ids = select(kind.id).where(*rules).order_by(kind.created_at, kind.id)
    for row_id in tx.session.scalars(ids).all():
        try:
            yield tx.session.scalars(select(kind).where(kind.id == row_id)).one()
        except (NoResultFound, RowBroken) as broken:
            logger.error("left out of the list: %s", broken, extra={"event": "database-differs"})
