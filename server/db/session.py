"""Named transactions on SQLite (WAL) and PostgreSQL, retried where the database says: try again.

Who may move a study's rounds on holds a lease with a fencing number, which every commit of its holder checks.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

from sqlalchemy import (
    URL,
    ColumnElement,
    CursorResult,
    Double,
    Engine,
    create_engine,
    event,
    extract,
    func,
    literal,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from client_sdk.protocol.wire.failpoints import failpoint, register
from server.db.tables import LeaseRow
from server.observation.observer import UNOBSERVED, Observer

T = TypeVar("T")
Point = Literal["reserve", "advance", "sum", "settle", "noise", "release", "abandon", "scrub"]
ATTEMPTS = 8
LOCK_WAIT_SECONDS = 10.0
# Raised before anything is committed, so that the work may be run again:
# serialization_failure, deadlock_detected, lock_not_available
_RETRY_STATES = ("40001", "40P01", "55P03")
register(*(f"worker.{side}-{point}" for side in ("before", "after") for point in Point.__args__))


class Clock(Protocol):
    """What may stand for the database's own clock."""

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
            return sql_cast(extract("epoch", func.clock_timestamp()), Double)
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

    def __init__(
        self,
        url: URL | str,
        *,
        clock: Clock | None = None,
        attempts: int = ATTEMPTS,
        observer: Observer = UNOBSERVED,
    ) -> None:
        self.engine = connect(url)
        # The same pool: readers and writers take turns on its connections.
        self._readers = self.engine.execution_options(read_only=True)
        # Rows are read after their commit, when no transaction is there to load them again.
        self._sessions = sessionmaker(expire_on_commit=False)
        event.listen(self._sessions, "before_flush", _remember_the_writer)
        self._clock = clock
        self._attempts = attempts
        self._observer = observer

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
        with self._observer.transaction(name) as again:
            return self._repeat(name, work, engine, again)

    def _repeat(self, name: str, work: Callable[[Transaction], T], engine: Engine, again: Callable[[], None]) -> T:
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
            # Outside the `with`, so that no connection is held; at random, so that two that met do not meet again.
            time.sleep(random.uniform(0, 0.005 * 2**attempt))
            again()
        raise AssertionError("unreachable: the last attempt returns or raises")


def is_retryable(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed if it is run again."""
    if getattr(error.orig, "sqlstate", None) in _RETRY_STATES:
        return True
    # SQLite has no SQLSTATE; its driver says it in words.
    return isinstance(error, OperationalError) and "database is locked" in str(error.orig)


def connect(url: URL | str) -> Engine:
    """An engine whose SQLite is durable (WAL, synchronous FULL) and begins writes with the write lock."""
    engine = create_engine(url, json_deserializer=_read_json, **_options(url))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "do_connect", lambda *_: _make_private(engine.url.database))
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgres)
    return engine


def _read_json(text: str) -> Any:
    """What a JSON column holds; what is no JSON stays text, which is not what anybody signed or a model reads."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _options(url: URL | str) -> dict[str, Any]:
    if str(url).startswith("sqlite"):
        return {"connect_args": {"timeout": LOCK_WAIT_SECONDS}, "pool_size": 20}
    # A connection that died while the database was away is replaced before it is used.
    # Writers lock the rows that they decide on, and READ COMMITTED shows them as they are after the wait; a snapshot
    # would fail there.
    return {"pool_pre_ping": True, "pool_size": 20, "isolation_level": "READ COMMITTED"}


def _make_private(database: str | None) -> None:
    """The file is its owner's alone, and so are the two beside it, whose mode SQLite copies from it."""
    if not database or database == ":memory:" or database.startswith("file:"):
        return
    # Before SQLite makes it, with the mode of the umask. What is wrong with a path, SQLite says itself.
    with suppress(OSError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))
    for path in (Path(database), Path(f"{database}-wal"), Path(f"{database}-shm")):
        with suppress(FileNotFoundError):
            keep_private(path, 0o600)


def keep_private(path: Path, mode: int) -> None:
    """Take away what `mode` does not allow; whoever does not own it cannot, and leaves it to its owner."""
    found = path.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & ~mode:
        path.chmod(stat.S_IMODE(found.st_mode) & mode)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # The driver's own transaction control would begin too late and commit around DDL.
    connection.isolation_level = None
    # Or one text that is none would end every query that meets it, about other studies as well.
    connection.text_factory = _decoded
    _use_write_ahead_log(connection)
    # In WAL mode, less than FULL may lose the last commits when the power fails: they have been acknowledged.
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="replace")


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
    # Set every time: the connection comes from the pool and may have served the other kind.
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if reading else 'OFF'}")
    # Not a plain BEGIN for writers: one that has read already is refused the write lock at once instead of waiting.
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _begin_postgres(connection: Any) -> None:
    if connection.get_execution_options().get("read_only", False):
        # An answer is put together from several queries: they must see one state.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def _remember_the_writer(session: Session, _context: Any, _instances: Any) -> None:
    # `dirty` also holds rows that were assigned the values they had.
    changed = (row for row in session.dirty if session.is_modified(row))
    for row in (*session.new, *changed):
        row.written_by = session.info["transaction"]


class LeaseLost(Exception):
    """Another worker has taken over; nothing of this transaction is committed."""


@dataclass(frozen=True)
class Lease:
    """Held by `owner` under fencing number `fence` for `seconds` after each commit."""

    study_id: int
    owner: str
    fence: int
    seconds: float

    def check(self, tx: Transaction) -> None:
        """Renew the lease inside `tx`, which can then commit only while nobody has taken over.

        Raises:
            LeaseLost: the fencing number is not the newest.
        """
        mine = update(LeaseRow).where(LeaseRow.study_id == self.study_id, LeaseRow.fence == self.fence)
        if not _changed(tx, mine.values(expires_at=tx.time + self.seconds, written_by=tx.name)):
            raise LeaseLost(f"the lease of study {self.study_id} went to another worker")


def commit_under_lease(database: Database, lease: Lease, point: Point, work: Callable[[Transaction], T]) -> T:
    """Run `work` in the transaction `worker-<point>`; commit durably if the lease is still ours.

    There is a failpoint on either side of the commit.

    Raises:
        LeaseLost: another worker has taken over; nothing was changed.
    """

    def guarded(tx: Transaction) -> T:
        # First: the lease's row stays locked until the commit, so that nobody takes over between check and commit.
        lease.check(tx)
        result = work(tx)
        # So that whoever is killed at this failpoint has sent every statement, and only the COMMIT is missing.
        tx.session.flush()
        failpoint(f"worker.before-{point}")
        return result

    result = database.write(f"worker-{point}", guarded)
    failpoint(f"worker.after-{point}")
    return result


def is_free_for(tx: Transaction, owner: str) -> ColumnElement[bool]:
    """Whether `owner` may take the lease: it is nobody's, its own already, or has run out."""
    return or_(LeaseRow.owner.is_(None), LeaseRow.owner == owner, LeaseRow.expires_at <= tx.time)


def acquire(tx: Transaction, study_id: int, owner: str, seconds: float) -> Lease | None:
    """The study's lease if it is free, run out or the owner's already; else None. One conditional UPDATE."""
    take = (
        update(LeaseRow)
        .where(LeaseRow.study_id == study_id, is_free_for(tx, owner))
        # Counted up for the same owner, too: what it holds of an earlier lease is void.
        .values(owner=owner, fence=LeaseRow.fence + 1, expires_at=tx.time + seconds, written_by=tx.name)
    )
    if not _changed(tx, take):
        return None
    return Lease(study_id, owner, tx.session.get_one(LeaseRow, study_id).fence, seconds)


def release(tx: Transaction, lease: Lease) -> None:
    """Let another worker have it at once."""
    # By fence, not by owner: whoever was overtaken frees nothing.
    mine = update(LeaseRow).where(LeaseRow.study_id == lease.study_id, LeaseRow.fence == lease.fence)
    tx.session.execute(mine.values(owner=None, written_by=tx.name))


def _changed(tx: Transaction, statement: Any) -> bool:
    result = tx.session.execute(statement.execution_options(synchronize_session=False))
    return cast("CursorResult[Any]", result).rowcount == 1
