"""A storm inside one process: real HTTP and real databases, but threads for processes and injected faults.

A death is an exception that nothing catches, and what it leaves is what a power cut would leave of its folder. So a
fault costs milliseconds where `tests.harness.chaos` starts a process, and there are many of them. The figures of the
two are counted apart.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from starlette.types import Receive, Scope, Send

import server.db.notifications
import server.worker
from client_sdk.api.client import ApiKey, Client, ServerClock
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.guard.policy import POLICY_FILE
from client_sdk.identity import Identity
from client_sdk.study.hospital import Hospital
from private_learning.records import Table
from server.app import CoordinatorServer, create_app, server_config
from server.config import Settings
from server.coordinator import open_coordinator
from server.db.notifications import news_of
from server.db.session import Database
from server.telemetry import JsonLines, configure_logging
from server.worker import Worker
from tests.harness.injected import FailingStatements, Killed, Listener, UnreliableTransport, Victim, Wire, current
from tests.harness.power import WatchedDisk

ORIGIN = "http://127.0.0.1:1"
LEASE_SECONDS = 0.5
STOP_SECONDS = 20.0


@dataclass
class Clock:
    """This machine's, so many seconds ahead."""

    ahead: float = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


@dataclass(frozen=True)
class Weather:
    """How often what happens: of passages of a failpoint, statements, commits, requests, syncs."""

    hospital_kill_rate: float = 0.03
    coordinator_kill_rate: float = 0.005
    stall_rate: float = 0.03
    statement_rate: float = 0.012
    commit_rate: float = 0.02
    network_rate: float = 0.6
    full_disk_rate: float = 0.004


class CoordinatorProcess:
    """One process of the coordinator: an API, a worker, or both."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        wire: Wire,
        clock: Clock,
        statements: FailingStatements,
        *,
        api: bool,
        works: bool,
        kill_rate: float,
    ) -> None:
        self.name, self.api, self.works = name, api, works
        self._settings, self._wire, self._clock, self._statements = settings, wire, clock, statements
        self._kill_rate = kill_rate
        self._stack = ExitStack()
        self.victim = Victim(name, kill_rate)

    def start(self) -> None:
        """Raises whatever keeps a process from starting."""
        self.victim = victim = Victim(self.name, self._kill_rate)
        with ExitStack() as stack:
            self._start(victim, stack)
            self._stack = stack.pop_all()

    def _start(self, victim: Victim, stack: ExitStack) -> None:
        coordinator = open_coordinator(self._settings)
        coordinator.database.dispose()
        coordinator = replace(coordinator, database=Database(self._settings.database(), clock=self._clock))
        stack.callback(coordinator.database.dispose)
        for engine in (coordinator.database.engine, coordinator.database._lookers):
            self._statements.install(engine)
        if self.works:
            worker = Worker(coordinator, lease_seconds=LEASE_SECONDS, poll_seconds=0.05)
            stack.enter_context(news_of(coordinator.database) if not self.api else nullcontext())
            self._thread(stack, lambda: self._work(worker), worker.stop)
        if self.api:
            app = create_app(self._settings, coordinator=coordinator, clock=self._clock.now)
            server = CoordinatorServer(server_config(_Mortal(app, victim), self._settings), app.state.context.watcher)
            self._thread(stack, server.run, lambda: server.handle_exit(signal.SIGTERM, None))
            while not server.started:
                time.sleep(0.002)
            listener = Listener(server.servers[0].sockets[0].getsockname()[1], victim)
            self._wire.listeners.append(listener)
            stack.callback(self._wire.listeners.remove, listener)

    def stop(self) -> None:
        """What still runs of it, alive or dead."""
        self.victim.dead = True
        self._stack.close()

    def _work(self, worker: Worker) -> None:
        current.set(self.victim)
        with suppress(Killed):
            worker.run()

    def _thread(self, stack: ExitStack, work: Callable[[], object], stop: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name=self.name, daemon=True)
        thread.start()

        def end() -> None:
            stop()
            thread.join(STOP_SECONDS)
            if thread.is_alive():
                raise RuntimeError(f"{self.name} does not stop")

        stack.callback(end)


class _Mortal:
    """An application whose requests belong to a victim."""

    def __init__(self, app: Any, victim: Victim) -> None:
        self._app, self._victim = app, victim

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        current.set(self._victim)
        await self._app(scope, receive, send)


class HospitalProcess:
    """One hospital: its directory, its patients, its clock. Every `start` is a process of it."""

    def __init__(
        self, name: str, directory: Path, rows: int, seed: int, wire: Wire, kill_rate: float, fails: Callable[[], bool]
    ) -> None:
        self.name, self.directory, self.clock = name, directory, Clock()
        self.disk = WatchedDisk(directory, fails)
        self._wire, self._kill_rate = wire, kill_rate
        self._table = patients(name, rows, seed)
        self._thread: threading.Thread | None = None
        self.victim = Victim(name, kill_rate)
        self.error: BaseException | None = None
        self.ended = False

    def enrol(self, token: str, policy: str) -> None:
        Hospital.enrol(ORIGIN, token, directory=self.directory, connection=_dial, transport=self._transport)
        (self.directory / POLICY_FILE).write_text(policy)
        # A person's editor, and a person who looks: that lies on the disk before anything is joined.
        self.disk.start()

    def hospital(self) -> Hospital:
        return Hospital(
            Identity.open(self.directory),
            connection=_dial,
            transport=self._transport,
            clock=ServerClock(self.clock.now),
            sleep=_briefly,
        )

    def start(self, study: str) -> None:
        self.victim, self.error, self.ended = Victim(self.name, self._kill_rate), None, False
        self._thread = threading.Thread(target=self._join, args=(study,), name=self.name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End its process, where one still runs: patient as it is, it would ask for ever."""
        self.victim.dead = True
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        if self.is_running:
            raise RuntimeError(f"{self.name} does not stop")

    def _join(self, study: str) -> None:
        current.set(self.victim)
        try:
            self.hospital().join(study, None, self._table)
            self.ended = True
        # Whatever it is: the storm looks at it.
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _transport(self, connection: Connection) -> Transport:
        return Transport(connection, handler=UnreliableTransport(self._wire))


@contextmanager
def stopped_afterwards(hospitals: Collection[HospitalProcess]) -> Generator[None]:
    """End what still runs of them, also after a failure: it would disturb all later tests."""
    # All of them, also where one does not stop.
    with ExitStack() as stack:
        for hospital in hospitals:
            stack.callback(hospital.stop)
        yield


def patients(name: str, rows: int, seed: int) -> Table:
    """Four numbers and an outcome of each."""
    source = np.random.default_rng(seed)
    inputs = source.uniform(-1, 1, (rows, 4))
    outcome = (inputs.sum(axis=1) + source.normal(size=rows) > 0).astype(float)
    columns: dict[str, Any] = {f"x{i}": inputs[:, i] for i in range(4)}
    identifiers = [f"patient-of-{name}-{i}" for i in range(rows)]
    return Table.of({"who": identifiers, **columns, "y": outcome}, patient_column="who")


def _dial(_: str) -> Connection:
    return Connection(url=ORIGIN, patience_seconds=float("inf"))


def _briefly(seconds: float) -> None:
    time.sleep(min(seconds, 0.05))


def operator_of(wire: Wire, key: str, before_each: Callable[[], object]) -> Client:
    """A person's client: patient, and through the same processes.

    before_each  called before a request: whoever asks in the storm's own thread has to start again what is dead
    """
    connection = Connection(url=ORIGIN, patience_seconds=60.0)
    handler = _Direct(wire, before_each)
    return Client(connection, ApiKey(key), transport=Transport(connection, handler=handler), sleep=_briefly)


class _Direct(httpx.BaseTransport):
    """Without faults of the network."""

    def __init__(self, wire: Wire, before_each: Callable[[], object]) -> None:
        self._wire, self._inner, self._before_each = wire, httpx.HTTPTransport(), before_each

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._before_each()
        return self._wire.forward(self._inner, request, request.read())

    def close(self) -> None:
        self._inner.close()


@contextmanager
def hurrying() -> Generator[None]:
    """Shorten the pauses that people wait for, and threads here do not have to."""
    before = server.db.notifications._LISTEN_SECONDS, server.worker._PAUSE_AFTER_FAILURE_SECONDS
    server.db.notifications._LISTEN_SECONDS = 0.1
    server.worker._PAUSE_AFTER_FAILURE_SECONDS = 0.1
    try:
        yield
    finally:
        server.db.notifications._LISTEN_SECONDS, server.worker._PAUSE_AFTER_FAILURE_SECONDS = before


@contextmanager
def logging_into(path: Path) -> Generator[None]:
    """Everything that either side logs meanwhile, as the coordinator's command formats it."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    configure_logging("INFO")
    handler = logging.FileHandler(path)
    handler.setFormatter(JsonLines())
    root.handlers[:] = [handler]
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        handler.close()
