"""A read-only connection to a hospital's database, with a timeout of each statement and rows in chunks."""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

from sqlalchemy import Connection, CursorResult, Engine, Executable, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from record_sources.errors import SourceError
from record_sources.source_file.addresses import DATABASES, parsed
from record_sources.source_file.description import DatabaseAddress
from record_sources.source_file.secrets import read_password
from record_sources.sql.faults import fault_of

# Rows at once: few enough for a small memory, many enough that a journey to the server costs little of each.
_FETCHED = 10_000
# A firewall may drop packets without an answer, and then a driver would wait for minutes.
_CONNECT_SECONDS = 30
# A server that keeps its own time is given so much more before its connection is cut.
_GRACE_SECONDS = 10
_EXPLAIN = "EXPLAIN (FORMAT JSON) "
# Sent before the first query. Oracle's must be the first of a transaction. SQL Server has none: give a user there
# the right to read alone.
_FIRST: Mapping[str, Sequence[str]] = {
    "postgresql": ("SET LOCAL statement_timeout = {milliseconds}",),
    # One state of the database for all tables.
    "sqlite": ("PRAGMA query_only = ON", "BEGIN"),
    "duckdb": (),
    "mysql": (
        "SET SESSION max_execution_time = {milliseconds}",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ),
    "mariadb": ("SET SESSION max_statement_time = {seconds}", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"),
    "oracle": ("SET TRANSACTION READ ONLY",),
    "mssql": (),
}


@dataclass(frozen=True, repr=False)
class FetchedQuery:
    """Rows of a query that runs. columns: their names."""

    columns: tuple[str, ...]
    rows: Iterator[Sequence[Any]]


@dataclass(frozen=True)
class ReadOnlyDatabase:
    """A database in one read-only transaction, so that all queries see one state.

    Attributes:
        connection: of SQLAlchemy.
        kind: by SQLAlchemy's name.
        timeout: seconds, of each statement with the fetching of its rows.
    """

    connection: Connection
    kind: str
    timeout: float

    @contextmanager
    def query(self, statement: str | Executable) -> Generator[FetchedQuery]:
        """Run a query, and fetch its rows in chunks while they are taken. Only a text is sent literally.

        Raises:
            SourceError: the database refuses it, does not answer in time, or the connection is lost. Rows raise it,
                too. It quotes no cell.
        """
        text = statement if isinstance(statement, str) else ""
        # Otherwise a driver would fetch the whole table into memory.
        connection = self.connection.execution_options(stream_results=True, max_row_buffer=_FETCHED)
        with self._watched(text) as watchdog:
            if isinstance(statement, str):
                # Signs such as % and : have no meaning of their own.
                result = connection.execution_options(no_parameters=True).exec_driver_sql(statement)
            else:
                result = connection.execute(statement)
        # A cursor of psycopg that finds its connection lost closes only the second time.
        closing = [result.close, cast("Any", result.cursor).close]
        try:
            yield FetchedQuery(tuple(map(str, result.keys())), self._fetched(result, text, watchdog))
        finally:
            watchdog.stop()
            for close in closing:
                # Of a lost connection.
                with contextlib.suppress(Exception):
                    close()

    def expected_rows(self, query: str) -> int | None:
        """Return about how many rows a query has, or None where finding out takes as long as the query.

        Raises:
            SourceError: as `query`.
        """
        if self.kind == "postgresql":
            with self._watched(query, len(_EXPLAIN)) as watchdog:
                plan = self._scalar(_EXPLAIN + query)
            watchdog.stop()
            plan = json.loads(plan) if isinstance(plan, str) else plan
            return int(plan[0]["Plan"]["Plan Rows"])
        if DATABASES[self.kind].file:
            with self._watched(query) as watchdog:
                # A comment may stand at the end of the query.
                rows = self._scalar(f"SELECT count(*) FROM (\n{query}\n) AS counted")  # noqa: S608
            watchdog.stop()
            return int(rows)
        return None

    def _scalar(self, text: str) -> Any:
        return self.connection.execution_options(no_parameters=True).exec_driver_sql(text).scalar_one()

    def _fetched(self, result: CursorResult[Any], text: str, watchdog: Watchdog) -> Iterator[Sequence[Any]]:
        while True:
            with self._in_words(text, watchdog):
                watchdog.check()
                chunk = result.fetchmany(_FETCHED)
            if not chunk:
                return
            yield from chunk

    @contextmanager
    def _watched(self, text: str, offset: int = 0) -> Generator[Watchdog]:
        """Start the time of a statement. It runs on after the block, until it is stopped."""
        grace = 0 if DATABASES[self.kind].file else _GRACE_SECONDS
        interrupt = _interrupter(self.kind, self.connection.connection.driver_connection)
        watchdog = Watchdog(self.timeout, grace, interrupt)
        try:
            with self._in_words(text, watchdog, offset):
                yield watchdog
        except BaseException:
            watchdog.stop()
            raise

    @contextmanager
    def _in_words(self, text: str, watchdog: Watchdog, offset: int = 0) -> Generator[None]:
        try:
            yield
        except _errors_of(self.connection.engine) as error:
            raise SourceError(
                fault_of(TimeoutError("interrupted") if watchdog.expired else error, text, offset)
            ) from None


class Watchdog:
    """Ends a statement that takes too long, from a thread of its own.

    Args:
        seconds: for the statement and for fetching its rows.
        grace: further seconds, in which the server or `check` may end it.
        interrupt: ends it.
    """

    def __init__(self, seconds: float, grace: float, interrupt: Callable[[], None]) -> None:
        self._end_time, self._interrupt = time.monotonic() + seconds, interrupt
        self._timer = threading.Timer(seconds + grace, self._end)
        # A process that is told to end does not wait for the time of a statement.
        self._timer.daemon = True
        self._timer.start()

    @property
    def expired(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end_time

    def check(self) -> None:
        """Raise TimeoutError if the time is over: a statement between two chunks cannot be ended."""
        if self.expired:
            raise TimeoutError

    def stop(self) -> None:
        """Let the statement be."""
        self._timer.cancel()

    def _end(self) -> None:
        # A connection that is closed already has nothing to be ended.
        with contextlib.suppress(Exception):
            self._interrupt()


@contextmanager
def read_only(address: DatabaseAddress) -> Generator[ReadOnlyDatabase]:
    """Connect to a database in one transaction that only reads. It is undone at the end.

    Raises:
        SourceError: the driver is not installed, the password is not found, or the database refuses the connection.
    """
    engine = _engine(address)
    kind = parsed(address.url).get_backend_name()
    try:
        connection = engine.connect()
        try:
            if kind == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            elif kind == "oracle":
                cast("Any", connection.connection.driver_connection).call_timeout = int(address.timeout * 1000)
            elif kind == "mssql":
                cast("Any", connection.connection.driver_connection).timeout = int(address.timeout)
            for statement in _FIRST[kind]:
                connection.exec_driver_sql(
                    statement.format(milliseconds=int(address.timeout * 1000), seconds=address.timeout)
                )
        except BaseException:
            connection.close()
            raise
    except _errors_of(engine) as error:
        engine.dispose()
        raise SourceError(fault_of(error)) from None
    try:
        yield ReadOnlyDatabase(connection, kind, address.timeout)
    finally:
        # A connection that was lost cannot be closed properly.
        with contextlib.suppress(Exception):
            connection.close()
        engine.dispose()


def _engine(address: DatabaseAddress) -> Engine:
    url, kind = parsed(address.url), parsed(address.url).get_backend_name()
    password = read_password(address)
    if password is not None:
        url = url.set(password=password.get_secret_value())
    options: dict[str, Any] = {}
    # The mode of the file, because PRAGMA query_only could be switched off by a query.
    if kind == "sqlite":
        path = f"file:{quote(str(url.database))}?mode=ro"
        options["creator"] = lambda: sqlite3.connect(path, uri=True, check_same_thread=False)
    elif kind == "duckdb":
        options["connect_args"] = {"read_only": True}
    elif kind == "postgresql":
        options["connect_args"] = {"connect_timeout": _CONNECT_SECONDS}
    elif kind in ("mysql", "mariadb"):
        seconds = int(address.timeout) + _GRACE_SECONDS
        options["connect_args"] = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": seconds}
    try:
        # No pool: a connection that was cut would be given out again. Parameters are hidden, as they may be
        # cells.
        return create_engine(url, poolclass=NullPool, hide_parameters=True, **options)
    except (ImportError, SQLAlchemyError):
        package = DATABASES[kind].package
        raise SourceError(f"databases of kind {kind} need a driver: pip install '{package}'") from None


def _errors_of(engine: Engine) -> tuple[type[Exception], ...]:
    """Return what a driver raises. Cells that Python cannot hold, such as a day of the year 20000, raise ValueError."""
    driver: Any = engine.dialect.loaded_dbapi
    return SQLAlchemyError, driver.Error, OSError, ValueError, OverflowError


def _interrupter(kind: str, connection: Any) -> Callable[[], None]:
    """Return what ends a statement from another thread. Other databases keep the time themselves."""
    if kind in ("sqlite", "duckdb"):
        return connection.interrupt
    if kind == "postgresql":
        return lambda: _cut(connection.fileno())
    return lambda: None


def _cut(descriptor: int) -> None:
    """End a connection whose server does not answer."""
    # A duplicate, because the driver still owns its descriptor and closes it.
    # On Windows it is no number of a file. The family has no meaning here.
    with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
