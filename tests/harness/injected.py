"""Faults that are injected inside one process: deaths at failpoints, statements that fail, requests that are lost.

Each is drawn by chance from one seeded source, counted by kind, and happens only while the source is armed.
"""

from __future__ import annotations

import errno
import hashlib
import random
import socket
import sqlite3
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx
import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine

from study_protocol.wire import failpoints

# Of a held-back or copied request: so many later requests come first.
LATE_REQUESTS = 12
NETWORK = {
    "dropped request": 18,
    "dropped answer": 18,
    "cut request": 10,
    "cut answer": 10,
    "repeated request": 16,
    "late copy of a request": 12,
    "request after its repetition": 6,
    "delayed request": 10,
}


class Killed(BaseException):
    """Stands for the end of a process: no handler of the program may swallow it."""


@dataclass
class Chance:
    """One seeded source for many threads. counts: faults that happened while it was `armed`."""

    seed: int
    armed: bool = False
    counts: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.source, self._lock = random.Random(self.seed), threading.Lock()

    def draw(self, rate: float) -> bool:
        """Whether something happens now, which is counted by the caller."""
        with self._lock:
            return self.armed and self.source.random() < rate

    def happens(self, kind: str, rate: float) -> bool:
        """Whether this fault happens now; counted if it does."""
        if not self.draw(rate):
            return False
        self.count(kind)
        return True

    def count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def choose(self, choices: Mapping[str, int]) -> str:
        with self._lock:
            (kind,) = self.source.choices(tuple(choices), tuple(choices.values()))
            return kind

    def uniform(self, low: float, high: float) -> float:
        with self._lock:
            return self.source.uniform(low, high)


@dataclass
class Victim:
    """What may die: a hospital, or a process of the coordinator. `dead` for good; a new one takes its place."""

    name: str
    kill_rate: float
    dead: bool = False
    point: str = ""


# Whose code runs in this thread, or in this request.
current: ContextVar[Victim | None] = ContextVar("current", default=None)


@contextmanager
def deaths(chance: Chance, stall_rate: float) -> Generator[None]:
    """While this lasts every passage of a failpoint may be the last of the victim whose code passes."""

    def pass_by(name: str) -> None:
        victim = current.get()
        if victim is None:
            return
        # What is dead does nothing more, in none of its threads.
        if victim.dead:
            raise Killed(name)
        if chance.happens(f"killed at {name}", victim.kill_rate):
            victim.dead, victim.point = True, name
            raise Killed(name)
        if chance.happens("stall", stall_rate):
            time.sleep(chance.uniform(0.02, 0.4))

    before, failpoints.passage = failpoints.passage, pass_by
    try:
        yield
    finally:
        failpoints.passage = before


class FailingStatements:
    """Errors of a database as its driver raises them, before a statement, before a commit and after one."""

    def __init__(self, chance: Chance, statement_rate: float, commit_rate: float) -> None:
        self._chance, self._statement_rate, self._commit_rate = chance, statement_rate, commit_rate

    def install(self, engine: Engine) -> None:
        """Into every connection of the engine."""
        dialect = engine.dialect
        # Its own, where several views of one engine share it.
        if getattr(dialect, "has_failing_statements", False):
            return
        dialect.has_failing_statements = True  # type: ignore[attr-defined]
        event.listen(engine, "do_execute", self._execute)
        commit = dialect.do_commit

        def do_commit(connection: Any) -> None:
            if self._chance.happens("commit failed", self._commit_rate):
                raise self._error(connection)
            commit(connection)
            # The classic: it is committed, and whoever asked is told that it failed.
            if self._chance.happens("commit done and answer lost", self._commit_rate):
                raise self._disconnect(connection)

        dialect.do_commit = do_commit  # type: ignore[method-assign]

    def _execute(self, cursor: Any, statement: str, parameters: Any, context: Any) -> None:
        if self._chance.happens("statement failed", self._statement_rate):
            raise self._error(cursor.connection)

    def _error(self, connection: Any) -> Exception:
        if not _is_sqlite(connection):
            kind = self._chance.choose({"gone": 3, "serialization": 3, "deadlock": 2, "full": 1, "shutdown": 1})
            match kind:
                case "serialization":
                    return psycopg.errors.SerializationFailure("could not serialize access")
                case "deadlock":
                    return psycopg.errors.DeadlockDetected("deadlock detected")
                case "full":
                    return psycopg.errors.DiskFull("could not extend file: No space left on device")
                case "shutdown":
                    _driver(connection).close()
                    return psycopg.errors.AdminShutdown("terminating connection due to administrator command")
                case _:
                    return self._disconnect(connection)
        words = {"database is locked": 5, "database or disk is full": 2, "disk I/O error": 2}
        return sqlite3.OperationalError(self._chance.choose(words))

    def _disconnect(self, connection: Any) -> Exception:
        if _is_sqlite(connection):
            return sqlite3.OperationalError("disk I/O error")
        _driver(connection).close()
        return psycopg.OperationalError("server closed the connection unexpectedly")


def _driver(connection: Any) -> Any:
    """The driver's own connection: closing the pool's would give it back instead."""
    return getattr(connection, "dbapi_connection", connection)


def _is_sqlite(connection: Any) -> bool:
    return isinstance(_driver(connection), sqlite3.Connection)


@dataclass
class Listener:
    """Where one process of the coordinator takes requests."""

    port: int
    victim: Victim


class Wire:
    """The network between hospitals and the coordinator's processes; real sockets, unreliable while armed.

    sent  SHA-256 of every body that was sent to an address, so that a repetition can be held against the first
    """

    def __init__(self, chance: Chance, rate: float) -> None:
        self.listeners: list[Listener] = []
        self.sent: dict[str, set[str]] = defaultdict(set)
        self._chance, self._rate, self._lock = chance, rate, threading.Lock()
        self._late: deque[tuple[int, httpx.Request]] = deque()
        self._requests = 0
        self._beside = httpx.HTTPTransport()

    def close(self) -> None:
        self._beside.close()

    def carry(self, inner: httpx.BaseTransport, request: httpx.Request, body: bytes) -> httpx.Response:
        """One request of a hospital. Raises httpx.TransportError."""
        self._note(request, body)
        self._deliver_late()
        if not self._chance.draw(self._rate):
            return self.forward(inner, request, body)
        fault = self._chance.choose(NETWORK)
        if "wait=" in str(request.url) and fault == "repeated request":
            fault = "delayed request"
        self._chance.count(fault)
        match fault:
            case "dropped request":
                raise httpx.ReadError("the request was lost")
            case "cut request" if body:
                self._send_half(request, body)
                raise httpx.WriteError("the connection broke within the request")
            case "request after its repetition":
                self._hold(request, body)
                raise httpx.ReadError("the request is late")
            case "late copy of a request":
                self._hold(request, body)
            case "repeated request":
                self.forward(inner, request, body)
            case _:
                time.sleep(self._chance.uniform(0.0, 0.1))
        response = self.forward(inner, request, body)
        if fault == "dropped answer":
            raise httpx.ReadError("the answer was lost")
        if fault in ("cut answer", "cut request"):
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")
        return response

    def _note(self, request: httpx.Request, body: bytes) -> None:
        parts = request.url.path.split("/")
        if request.method == "PUT" and len(parts) > 2 and ("updates" in parts or "masked" in parts):
            self.sent[request.url.path].add(hashlib.sha256(body).hexdigest())

    def forward(self, inner: httpx.BaseTransport, request: httpx.Request, body: bytes) -> httpx.Response:
        listener = self._listener()
        url = httpx.URL(scheme="http", host="127.0.0.1", port=listener.port, raw_path=request.url.raw_path)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        copy = httpx.Request(request.method, url, headers=headers, content=body, extensions=request.extensions)
        response = inner.handle_request(copy)
        try:
            content = response.read()
        finally:
            response.close()
        # A process that has died meanwhile said nothing any more.
        if listener.victim.dead:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        return httpx.Response(response.status_code, headers=response.headers, content=content)

    def _listener(self) -> Listener:
        with self._lock:
            living = [listener for listener in self.listeners if not listener.victim.dead]
            if not living:
                raise httpx.ConnectError("nothing listens there") from ConnectionRefusedError(errno.ECONNREFUSED)
            return self._chance.source.choice(living)

    def _hold(self, request: httpx.Request, body: bytes) -> None:
        copy = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        with self._lock:
            self._late.append((self._requests + LATE_REQUESTS, copy))

    def _deliver_late(self) -> None:
        with self._lock:
            self._requests += 1
            due = self._late.popleft()[1] if self._late and self._late[0][0] <= self._requests else None
        if due is not None:
            due.extensions = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), 10.0)}
            # It was late; nobody waits for its answer.
            with suppress(httpx.TransportError):
                self.forward(self._beside, due, due.content)

    def _send_half(self, request: httpx.Request, body: bytes) -> None:
        listener = self._listener()
        lines = [f"{request.method} {request.url.raw_path.decode()} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body[: len(body) // 2])


class UnreliableTransport(httpx.BaseTransport):
    """One hospital's way into the network."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._inner = wire, httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        victim = current.get()
        # One that was ended from outside passes no failpoint while it waits for news.
        if victim is not None and victim.dead:
            raise Killed(victim.point)
        return self._wire.carry(self._inner, request, request.read())

    def close(self) -> None:
        self._inner.close()
