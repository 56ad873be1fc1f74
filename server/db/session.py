"""Named transactions on SQLite (WAL) and PostgreSQL, retried where the database says: try again."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    URL,
    ColumnElement,
    Double,
    Engine,
    cast,
    create_engine,
    event,
    extract,
    func,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

T = TypeVar("T")

ATTEMPTS = 8
LOCK_WAIT_SECONDS = 10.0
# serialization_failure, deadlock_detected, lock_not_available
_RETRY_STATES = ("40001", "40P01", "55P03")


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class Transaction:
    """One transaction under way; `name` is what its rows remember."""

    def __init__(self, name: str, session: Session, clock: Clock | None) -> None:
        self.name = name
        self.session = session
        self._clock = clock
        self._now: float | None = None

    @property
    def time(self) -> ColumnElement[float]:
        """The database's own clock as an expression, so that processes on several hosts agree."""
        if self._clock is not None:
            return literal(self._clock.now(), Double)
        if self.session.get_bind().dialect.name == "postgresql":
            return cast(extract("epoch", func.clock_timestamp()), Double)
        # julianday has millisecond resolution and exists in every SQLite.
        return type_coerce((func.julianday("now") - 2440587.5) * 86400.0, Double)

    def now(self) -> float:
        """Seconds since the epoch, read once per transaction."""
        if self._now is None:
            # Asking the time must not send half-changed rows ahead.
            with self.session.no_autoflush:
                self._now = float(self.session.scalar(select(self.time)) or 0.0)
        return self._now


class Database:
    """The coordinator's database. `clock` replaces the database's own clock in simulations."""

    def __init__(self, url: URL | str, *, clock: Clock | None = None, attempts: int = ATTEMPTS) -> None:
        self.engine = connect(url)
        self._readers = self.engine.execution_options(read_only=True)
        self._sessions = sessionmaker(expire_on_commit=False)
        event.listen(self._sessions, "before_flush", _remember_the_writer)
        self._clock = clock
        self._attempts = attempts

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction and commit it durably; run it again after a serialisation failure or a lock.

        `work` therefore changes nothing outside the transaction. Whatever it raises rolls everything back.
        """
        return self._run(name, work, self.engine)

    def read(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one snapshot of the database; it cannot write."""
        return self._run(name, work, self._readers)

    def dispose(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _run(self, name: str, work: Callable[[Transaction], T], engine: Engine) -> T:
        for attempt in range(1, self._attempts + 1):
            with self._sessions(bind=engine, info={"transaction": name}) as session:
                try:
                    result = work(Transaction(name, session, self._clock))
                    session.commit()
                    return result
                except DBAPIError as error:
                    session.rollback()
                    if attempt == self._attempts or not is_retryable(error):
                        raise
            time.sleep(random.uniform(0, 0.005 * 2**attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")


def is_retryable(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed if it is run again."""
    if getattr(error.orig, "sqlstate", None) in _RETRY_STATES:
        return True
    return isinstance(error, OperationalError) and "database is locked" in str(error.orig)


def connect(url: URL | str) -> Engine:
    """An engine whose SQLite is durable (WAL, synchronous FULL) and begins writes with the write lock."""
    engine = create_engine(url, **_options(url))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgres)
    return engine


def _options(url: URL | str) -> dict[str, Any]:
    if str(url).startswith("sqlite"):
        return {"connect_args": {"timeout": LOCK_WAIT_SECONDS}, "pool_size": 20}
    # A connection that died while the database was away is replaced before it is used.
    return {"pool_pre_ping": True, "pool_size": 20, "isolation_level": "READ COMMITTED"}


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # The driver's own transaction control would begin too late and commit around DDL.
    connection.isolation_level = None
    _use_write_ahead_log(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _use_write_ahead_log(connection: Any) -> None:
    # Two processes that open a new file at once: this one statement does not wait for the lock by itself.
    end = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.005, 0.02))


def _begin_sqlite(connection: Any) -> None:
    reading = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if reading else 'OFF'}")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _begin_postgres(connection: Any) -> None:
    if connection.get_execution_options().get("read_only", False):
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def _remember_the_writer(session: Session, _context: Any, _instances: Any) -> None:
    changed = (row for row in session.dirty if session.is_modified(row))
    for row in (*session.new, *changed):
        row.written_by = session.info["transaction"]
