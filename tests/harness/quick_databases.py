"""What engines of one process need to compute once, although each test has a database of its own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from server.db import session

STATEMENTS = 10_000


def share_compiled_statements() -> None:
    """Let all engines of this process compile a statement once, as a coordinator's only engine does.

    The cache's keys name the dialect, and those of one kind differ in nothing.
    """
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        dialect.__eq__ = lambda one, other: type(one) is type(other)
        dialect.__hash__ = lambda one: hash(type(one))
    shared = {"compiled_cache": LRUCache[Any, Any](STATEMENTS)}

    def sharing(*arguments: Any, **options: Any) -> Engine:
        return create_engine(*arguments, execution_options=shared, **options)

    session.create_engine = sharing
