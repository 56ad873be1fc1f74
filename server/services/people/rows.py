"""Rows of people as lists show them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.exc import NoResultFound

from server.db.people_tables import ApiKeyRow, SessionRow
from server.db.row_checks import RowBroken
from server.db.session import Transaction

logger = logging.getLogger("wardround.coordinator")
R = TypeVar("R", ApiKeyRow, SessionRow)


def sound_rows(tx: Transaction, kind: type[R], *rules: ColumnElement[bool]) -> Iterator[R]:
    """Yield rows in the order of their making, without broken ones, or the others could not be seen and ended."""
    ids = select(kind.id).where(*rules).order_by(kind.created_at, kind.id)
    for id in tx.session.scalars(ids).all():
        try:
            yield tx.session.scalars(select(kind).where(kind.id == id)).one()
        except (NoResultFound, RowBroken) as broken:
            logger.error("left out of the list: %s", broken, extra={"event": "database-differs"})
