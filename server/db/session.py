"""Named transactions on SQLite (WAL) and PostgreSQL, retried where the database says: try again."""

from __future__ import annotations

import copy
import json
import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    URL,
    ColumnElement,
    Double,
    Engine,
    Executable,
    Row,
    bindparam,
    create_engine,
    event,
    extract,
    func,
    select,
    text,
    type_coerce,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from server.db.groups import Groups
from server.observation.observer import UNOBSERVED, ProcessObserver

T = TypeVar("T")
# Arguments of a listener: a study's name and the number of its newest event, 0 if only a worker has to look.
Listener = Callable[[str, int], None]
ATTEMPTS = 8
LOCK_WAIT_SECONDS = 10.0
# Of PostgreSQL's notifications.
CHANNEL = "wardround"
# Of its own: threads that wait move no generator that others of the process draw from.
_PAUSES = random.Random()
# While one thread makes the database's file no other opens it.
_making = threading.Lock()
_NOTIFY = text("SELECT pg_notify(:channel, :news)")
# Raised before anything is committed, so that the work may be run again:
# serialization_failure, deadlock_detected, lock_not_available
_RETRY_STATES = ("40001", "40P01", "55P03")


class DatabaseClock(Protocol):
    """A stand-in for the database's own clock."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...


class Transaction:
    """One transaction under way. Its rows remember `name`.

    time    the database's own clock as an expression, so that processes on several hosts agree
    shared  facts that pieces of work which are committed together find out once. Empty at the start
    news    announcements after the commit: study → number of its newest event, or 0
    work    studies of these for which a worker has something to do now
    """

    def __init__(self, name: str, session: Session, time: ColumnElement[float]) -> None:
        self.name = name
        self.session = session
        self.time = time
        self.shared: dict[Any, Any] = {}
        self.news: dict[str, int] = {}
        self.work: set[str] = set()
        self.afterwards: list[Callable[[], None]] = []
        self._now: float | None = None

    def announce(self, study: str, event: int = 0, *, work: bool = True) -> None:
        """Wake the requests that wait for news of the study, in every process, once this is committed.

        work  whether a worker has something to do now
        """
        self.news[study] = max(event, self.news.get(study, 0))
        if work:
            self.work.add(study)

    def after_commit(self, act: Callable[[], None]) -> None:
        """Do something in memory once this is committed, and only then."""
        self.afterwards.append(act)

    def now(self) -> float:
        """Return seconds since the epoch."""
        if self._now is None:
            # Asking the time must not send half-changed rows ahead.
            with self.session.no_autoflush:
                self._now = float(self.session.scalar(select(self.time)) or 0.0)
        return self._now


class Database:
    """The coordinator's database: SQLite in a file, or PostgreSQL. `clock` replaces its own clock in simulations.

    time           its clock as an expression: seconds since the epoch
    is_in_process  whether it is in this very process: a question costs less than another thread
    """

    def __init__(
        self,
        url: URL | str,
        *,
        clock: DatabaseClock | None = None,
        attempts: int = ATTEMPTS,
        observer: ProcessObserver = UNOBSERVED,
    ) -> None:
        self.engine = connect(url)
        # The same pool: readers and writers take turns on its connections.
        self._readers = self.engine.execution_options(read_only=True)
        self._lookers = _looking(self.engine)
        self.is_in_process = self.engine.dialect.name == "sqlite"
        self._listeners: list[tuple[Listener, bool]] = []
        self._groups = Groups[Transaction](self.write)
        # Rows are read after their commit, when no transaction is there to load them again.
        self._sessions = sessionmaker(expire_on_commit=False)
        event.listen(self._sessions, "before_flush", _remember_the_writer)
        self.time = _time(self.engine, clock)
        self._attempts = attempts
        self._observer = observer
        self._beginning: Callable[[Transaction], None] | None = None
        self.unaccompanied = self

    def beginning_with(self, beginning: Callable[[Transaction], None]) -> Database:
        """Return this database as one request sees it: `beginning` runs first in each transaction that writes.

        `unaccompanied` of the result is this database.
        """
        database = copy.copy(self)
        database._beginning = beginning
        return database

    def write(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction and commit it durably. It runs again after a serialisation failure or a lock.

        `work` therefore changes no state outside the transaction. Its exceptions roll everything back.
        """
        return self._run(name, work, self.engine)

    def write_with_others(self, group: str, name: str, work: Callable[[Transaction], T]) -> Future[T]:
        """Write as `write`, in one transaction with others of this group that write in the same moment.

        All of a group lock the same rows in the same order. Locked or read rows are then known to the later pieces
        (`Transaction.shared`). The result is done once it is committed, and raises the exceptions of `work`.
        """
        if self._beginning is not None:
            # The group has no place for it: a change would lack its entry in the audit log.
            raise RuntimeError(f"{name}: what a request begins with is written in a transaction of its own")
        return self._groups.write(group, name, work)

    def read(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one snapshot of the database. It cannot write."""
        return self._run(name, work, self._readers)

    def look(self, question: Executable, values: Mapping[str, Any]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return the rows that answer one question, without a transaction around it: for questions of every request.

        These rows are not objects of the ORM, so they have not been checked for soundness.
        """
        started = time.perf_counter()
        with self._lookers.connect() as connection:
            rows = connection.execute(question, values).all()
        self._observer.answered("look", started)
        return rows

    def listen(self, listener: Listener, *, work: bool = False) -> None:
        """Tell `listener` of every commit of this process. It is called in the thread that commits.

        work  only news that a worker has to look at
        """
        self._listeners.append((listener, work))

    def tell(self, study: str, event: int, *, work: bool = True) -> None:
        """Tell every listener of this process."""
        for listener, workers in self._listeners:
            if work or not workers:
                listener(study, event)

    def dispose(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        self._lookers.dispose()

    def _run(self, name: str, work: Callable[[Transaction], T], engine: Engine) -> T:
        with self._observer.transaction(name) as count_retry:
            return self._repeat(name, work, engine, count_retry)

    def _repeat(
        self, name: str, work: Callable[[Transaction], T], engine: Engine, count_retry: Callable[[], None]
    ) -> T:
        for attempt in range(1, self._attempts + 1):
            with self._sessions(bind=engine, info={"transaction": name}) as session:
                tx = Transaction(name, session, self.time)
                try:
                    if self._beginning is not None and engine is self.engine:
                        self._beginning(tx)
                    result = work(tx)
                    _notify(tx)
                    session.commit()
                except DBAPIError as error:
                    session.rollback()
                    if attempt == self._attempts or not is_retryable(error):
                        raise
                else:
                    self._committed(tx)
                    return result
            # Outside the `with`, so that no connection is held. At random, so that two that met do not meet again.
            time.sleep(_PAUSES.uniform(0, 0.005 * 2**attempt))
            count_retry()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _committed(self, tx: Transaction) -> None:
        for act in tx.afterwards:
            act()
        for study, number in tx.news.items():
            self.tell(study, number, work=study in tx.work)


def _notify(tx: Transaction) -> None:
    """Tell other processes in the moment of the commit. SQLite cannot, so they look by themselves."""
    if tx.news and tx.session.get_bind().dialect.name == "postgresql":
        for study, number in tx.news.items():
            news = f"{study}:{number}:{int(study in tx.work)}"
            tx.session.execute(_NOTIFY, {"channel": CHANNEL, "news": news})


def is_retryable(error: DBAPIError) -> bool:
    """Return whether the same transaction may succeed if it is run again."""
    if getattr(error.orig, "sqlstate", None) in _RETRY_STATES:
        return True
    # SQLite has no SQLSTATE. Its driver says it in words.
    return isinstance(error, OperationalError) and "database is locked" in str(error.orig)


def connect(url: URL | str, *, transactions: bool = True) -> Engine:
    """Return an engine whose SQLite is durable (WAL, synchronous FULL) and begins writes with the write lock.

    transactions  False: SQLite's driver begins no transaction, and every statement is by itself
    """
    engine = create_engine(url, json_deserializer=_read_json, **_options(url))
    if engine.dialect.name == "sqlite":
        event.listen(engine, "do_connect", lambda *_: _make_private(engine.url.database))
        event.listen(engine, "connect", _prepare_sqlite)
        if transactions:
            event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgres)
    return engine


def _read_json(text: str) -> Any:
    """Return the value of a JSON column. Invalid JSON stays text, which neither a signature nor a model accepts."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _options(url: URL | str) -> dict[str, Any]:
    if str(url).startswith("sqlite"):
        return {"connect_args": {"timeout": LOCK_WAIT_SECONDS}, "pool_size": 20}
    # A connection that died while the database was away is replaced before it is used. Writers lock the rows that they
    # decide on, and READ COMMITTED shows them as they are after the wait. A snapshot would fail there. A silent peer is
    # given up after seconds, not after the quarter of an hour that the kernel takes: all next questions may wait behind
    # it.
    timeouts = {"connect_timeout": 10, "tcp_user_timeout": 10_000}
    return {"pool_pre_ping": True, "pool_size": 20, "isolation_level": "READ COMMITTED", "connect_args": timeouts}


def _time(engine: Engine, clock: DatabaseClock | None) -> ColumnElement[float]:
    if clock is not None:
        # Asked whenever a statement is executed, not when it is put together.
        return bindparam("clock", callable_=clock.now, type_=Double, unique=True)
    if engine.dialect.name == "postgresql":
        return sql_cast(extract("epoch", func.clock_timestamp()), Double)
    # julianday has millisecond resolution and exists in every SQLite.
    return type_coerce((func.julianday("now") - 2440587.5) * 86400.0, Double)


def _looking(engine: Engine) -> Engine:
    """Return an engine for single questions without a transaction."""
    if engine.dialect.name != "sqlite":
        return engine.execution_options(isolation_level="AUTOCOMMIT")
    # Its own connections, so that a question does not wait for writers.
    return connect(engine.url, transactions=False)


def _make_private(database: str | None) -> None:
    """Make the file its owner's alone, and so the two beside it, whose mode SQLite copies from it."""
    if not database:
        return
    # Before SQLite makes it, with the mode of the umask. SQLite itself reports a wrong path. An existing file is never
    # opened here: closing any descriptor of it takes this process's locks away. Those keep other processes from
    # deleting the log with acknowledged commits in it (sqlite.org/howtocorrupt.html, 2.2).
    with _making, suppress(OSError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for path in (Path(database), Path(f"{database}-wal"), Path(f"{database}-shm")):
        with suppress(FileNotFoundError):
            keep_private(path, 0o600)


def keep_private(path: Path, mode: int) -> None:
    """Take away what `mode` does not allow. A process that does not own the file leaves it to its owner."""
    status = path.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & ~mode:
        path.chmod(stat.S_IMODE(status.st_mode) & mode)


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
            time.sleep(_PAUSES.uniform(0.005, 0.02))


def _begin_sqlite(connection: Any) -> None:
    if connection.get_execution_options().get("looking", False):
        return
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
