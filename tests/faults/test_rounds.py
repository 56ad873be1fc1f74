"""Whatever operators, hospitals, workers, clocks and deaths do in whatever order, the laws of the ledger hold.

A simulation is a list of operations on a fake clock; a failing one is printed, and can be replayed as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from server.db.session import Database
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.studies import enrolment, lifecycle
from server.worker import Worker
from study_protocol.wire import failpoints
from study_protocol.wire.tensors import TensorError
from tests.conftest import Postgres
from tests.factories.dying import Killed, dying_at
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.laws import Facts, RecordedNoise, check_ledger, check_models, check_receipts, check_rounds, facts
from tests.factories.settings import ORDERS
from tests.factories.studies import FakeClock, coordinator_on, open_study

LEASE_SECONDS = 5.0
CLIENTS = 4
Operation = tuple[str, ...] | tuple[str, int] | tuple[str, float]

clients = st.integers(0, CLIENTS - 1)
workers = st.integers(0, 1)
# How often an operation comes, in a hundred. A stop or a withdrawal ends much, so it comes rarely.
WEIGHTS = {
    "work": 28,
    "everybody sends": 26,
    "outdated work": 8,
    "send": 8,
    "sleep": 8,
    "repeat": 5,
    "refuse": 4,
    "send garbage": 3,
    "equivocate": 3,
    "resume": 3,
    "pause": 1,
    "withdraw": 1,
    "lose a file": 1,
    "stop": 1,
}
ARGUMENTS: dict[str, st.SearchStrategy[float]] = {
    "work": workers,
    "outdated work": workers,
    "sleep": st.sampled_from([1.0, LEASE_SECONDS, LEASE_SECONDS, 600.0]),
    **dict.fromkeys(("send", "refuse", "send garbage", "equivocate", "repeat", "withdraw"), clients),
}


@st.composite
def steps(draw: st.DrawFn) -> tuple[Operation, tuple[str] | None]:
    """An operation, and in one of three the failpoint at which the coordinator dies if it comes by."""
    kind = draw(st.sampled_from([kind for kind, weight in WEIGHTS.items() for _ in range(weight)]))
    operation: Operation = (kind, draw(ARGUMENTS[kind])) if kind in ARGUMENTS else (kind,)
    points = failpoints.names("worker." if "work" in kind else "api.")
    return operation, (draw(st.sampled_from(points)),) if draw(st.integers(0, 2)) == 1 else None


script = st.lists(steps(), min_size=30, max_size=60)


class Simulation:
    """One study, two workers, and what every hospital remembers."""

    def __init__(self, url: str, home: Path, scheme: str) -> None:
        self.url, self.home, self.scheme = url, home, scheme
        self.clock, self.noise = FakeClock(), RecordedNoise()
        self.sent: dict[tuple[int, str], bytes] = {}
        self.receipts: dict[tuple[int, str], bytes] = {}
        self.start()
        training = {"algorithm": "fedavg"}
        open_study(
            self.coordinator,
            clients=CLIENTS,
            scheme=scheme,
            bayesian=scheme == "parallel",
            max_steps=4,
            training=training,
        )

    def start(self) -> None:
        coordinator = coordinator_on(Database(self.url, clock=self.clock), self.home)
        self.coordinator = Coordinator(**{**vars(coordinator), "noise": self.noise})
        self.workers = [Worker(self.coordinator, lease_seconds=LEASE_SECONDS) for _ in range(2)]

    def run(self, operation: Operation, death: tuple[str] | None) -> None:
        """One operation; if the coordinator dies in it, it is started again."""
        with dying_at(death[0] if death else "nowhere"):
            try:
                self.do(*operation)
            except (Rejected, TensorError):
                # Operators and hospitals may always ask; a refusal changes nothing, which the laws check.
                pass
            except Killed:
                self.coordinator.database.dispose()
                self.start()
        check_rounds(facts(self.coordinator))

    def do(self, kind: str, argument: float = 0) -> None:
        match kind:
            case "work":
                while self.workers[int(argument)].step():
                    pass
            case "outdated work":
                worker, other = self.workers[int(argument)], self.workers[1 - int(argument)]
                tasks = worker._tasks()
                other.step()
                for task in tasks:
                    worker.perform(task)
            case "sleep":
                self.clock.sleep(argument)
            case "everybody sends":
                for number in range(CLIENTS):
                    self.send(number)
            case "pause" | "resume" | "stop":
                lifecycle.act(self.coordinator, "sepsis", kind)
            case "withdraw":
                enrolment.withdraw(self.coordinator, "sepsis", f"h{int(argument)}")
            case "lose a file":
                shutil.rmtree(self.home / "blobs" / "rounds", ignore_errors=True)
            case _:
                self.answer(kind, int(argument))

    def answer(self, kind: str, number: int) -> None:
        hospital = Hospital(UseCases(self.coordinator), "sepsis", f"h{number}")
        rounds = facts(self.coordinator).rounds
        newest = rounds[-1].number if rounds else 1
        match kind:
            case "send":
                self.send(number)
            case "refuse":
                hospital.refuse(newest)
            case "send garbage":
                hospital.send(newest, b"garbage")
            case "equivocate":
                hospital.send(newest, self.body(0.05))
            case "repeat":
                for key in [key for key in self.sent if key[1] == hospital.name]:
                    hospital.send(key[0], self.sent[key])
                    self.receipts[key] = self.sent[key]

    def send(self, number: int) -> None:
        hospital = Hospital(UseCases(self.coordinator), "sepsis", f"h{number}")
        given = hospital.assignment()
        if given is not None:
            key = (given.assignment.round, hospital.name)
            body = self.sent.setdefault(key, self.body(0.002 * len(self.sent)))
            hospital.send(key[0], body)
            self.receipts[key] = body

    def body(self, value: float) -> bytes:
        log_moments = tuple(1e-4 for _ in (0, *ORDERS)) if self.scheme == "parallel" else None
        return update(value, log_moments=log_moments)

    def finish(self) -> Facts:
        """Whatever state it is in, workers and a stop bring it to its end."""
        for _ in range(2):
            self.clock.sleep(LEASE_SECONDS)
            while self.workers[0].step():
                pass
            if facts(self.coordinator).study.state != "finished":
                lifecycle.act(self.coordinator, "sepsis", "stop")
        return facts(self.coordinator)

    def check(self) -> None:
        found = self.finish()
        check_ledger(found)
        check_rounds(found)
        recorded = {key: body for key, body in self.receipts.items() if key in self.known(found)}
        assert recorded == self.receipts
        check_receipts(found, self.receipts)
        self.check_models(found)
        assert all(round.ended_at is not None and round.scrubbed_at is not None for round in found.rounds)
        assert self.coordinator.blobs.folders("rounds/sepsis") == []

    def known(self, found: Facts) -> set[tuple[int, str]]:
        return {(row.round, row.client) for row in found.participants if row.state == "received"}

    def check_models(self, found: Facts) -> None:
        equivocal = self.body(0.05)
        sent = dict.fromkeys(self.known(found), equivocal) | self.sent_and_recorded(found)
        check_models(self.coordinator, found, sent, self.noise)

    def sent_and_recorded(self, found: Facts) -> dict[tuple[int, str], bytes]:
        hashes = {(row.round, row.client): row.sha256 for row in found.participants}
        return {key: body for key, body in self.sent.items() if hashes.get(key) == digest(body)}


def digest(body: bytes) -> str:
    import hashlib

    return hashlib.sha256(body).hexdigest()


@contextmanager
def simulation(url: str, home: Path, scheme: str) -> Iterator[Simulation]:
    running = Simulation(url, home, scheme)
    try:
        yield running
    finally:
        running.coordinator.database.dispose()


def play(url: str, home: Path, scheme: str, operations: list[tuple[Operation, tuple[str] | None]]) -> None:
    with simulation(url, home, scheme) as running:
        for operation, death in operations:
            running.run(operation, death)
        running.check()


USUAL: list[tuple[Operation, tuple[str] | None]] = [(("work", 0), None), (("everybody sends",), None)] * 5
UNLUCKY: list[tuple[Operation, tuple[str] | None]] = [
    (("work", 0), None),
    (("everybody sends",), ("api.after-update-file",)),
    (("repeat", 0), None),
    (("everybody sends",), None),
    (("outdated work", 1), ("worker.after-settle",)),
    (("sleep", 5.0), None),
    (("work", 0), ("worker.after-noise",)),
    (("sleep", 5.0), None),
    (("outdated work", 0), None),
    (("outdated work", 0), None),
    (("sleep", 5.0), None),
    (("work", 1), ("worker.before-scrub",)),
]

_homes = count()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["client", pytest.param("parallel", marks=pytest.mark.slow)])
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@example(operations=USUAL)
@example(operations=UNLUCKY)
@given(operations=script)
def test_the_laws_hold_on_sqlite(
    sqlite_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    scheme: str,
    operations: list[tuple[Operation, tuple[str] | None]],
) -> None:
    home = tmp_path_factory.mktemp(f"home{next(_homes)}")
    shutil.copyfile(sqlite_template, home / "wardround.db")
    play(f"sqlite:///{home}/wardround.db", home, scheme, operations)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["client", "parallel"])
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@example(operations=USUAL)
@example(operations=UNLUCKY)
@given(operations=script)
def test_the_laws_hold_on_postgresql(
    postgres: Postgres,
    tmp_path_factory: pytest.TempPathFactory,
    scheme: str,
    operations: list[tuple[Operation, tuple[str] | None]],
) -> None:
    name = postgres.create()
    url = postgres.url(name).render_as_string(hide_password=False)
    try:
        play(url, tmp_path_factory.mktemp(f"home{next(_homes)}"), scheme, operations)
    finally:
        postgres.drop(name)
