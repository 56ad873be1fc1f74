"""Whole secure sums over HTTP: how long they take, what they cost the coordinator, and whether that grows linearly.

    python -m benchmarks.secure_sessions [--small] [--databases sqlite postgres]

A coordinator (`wardround serve`, with its worker) in a process of its own; all hospitals are threads of this one, each
with its own key, connection and stored state, through the SDK's own steps and checks. Nobody trains and nobody is
lost. The peer is the same study without masks: as many bytes sent as plain updates to the same coordinator. Seconds
run from the first request of a round to the last hospital's last answer; processor seconds are the coordinator's.
Bytes are bodies, without HTTP heads: every client sends and gets a sealed share of 88 bytes for each other one, and
gets everybody's keys, digests and signatures, so its bytes grow with the clients while its vectors do not. Results go
to benchmarks/results/secure_sessions.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import create_engine, make_url, text

from benchmarks.measured import RETAIN, peak_mib, processor_seconds
from client_sdk.api.client import Client, Signature
from client_sdk.api.config import Connection
from client_sdk.api.transport import Answer, Call, Transport
from client_sdk.errors import ConflictError
from client_sdk.guard.policy import Floors
from client_sdk.identity import Identity, Membership
from client_sdk.protocol.secure_sum.parameters import UPDATE as UPDATE_VECTOR
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.study.messages import AssignmentBody, InvitationCreate, SignedParameters, StudyCreate
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.signing import decode_public_key
from client_sdk.protocol.wire.tensors import UPDATE, encode, spec_of
from client_sdk.secure_sum.round import MaskedRound
from client_sdk.secure_sum.steps import Party
from client_sdk.secure_sum.store import FileStore
from client_sdk.study.enrolment import enrol
from experiments import tiny
from experiments.live import LiveCoordinator, embedded_postgres
from experiments.processes import Processes

RESULTS = Path(__file__).parent / "results" / "secure_sessions.json"
TERMS, UPDATES = 256, 10**6
ROUNDS = {TERMS: 3, UPDATES: 1}


@dataclass(frozen=True)
class Case:
    """A study: hospitals, values and rounds; 256 values like log-moments (64 bits), more like updates (32 bits)."""

    database: str
    clients: int
    values: int
    masked: bool

    @property
    def name(self) -> str:
        return f"{'masked' if self.masked else 'plain'}-{self.clients}-{self.values}"

    @property
    def rounds(self) -> int:
        return ROUNDS.get(self.values, 1)

    @property
    def model(self) -> dict[str, np.ndarray]:
        # A plain update has as many bytes as the masked one: two float32 for a word of 64 bits.
        return {"weight": np.zeros(self.values * (2 if self.values == TERMS and not self.masked else 1), np.float32)}

    def settings(self) -> StudySettings:
        scheme = "client" if self.values > TERMS else "parallel"
        level = "client" if scheme == "client" else "instance"
        colluders = self.clients // 5
        masking = {
            "colluders": colluders,
            "neighbours": None,
            "min_survivors": colluders + 3,
            "mask_updates": True,
            "allow_three": False,
            "step_deadline_seconds": 600.0,
            "expiry_seconds": 3600.0,
        }
        return tiny.settings(
            scheme,
            clients=self.clients,
            rounds=self.rounds,
            bayesian=False,
            deadline_seconds=600.0,
            training={"task": "last-layer", "task_parameters": {}, "algorithm": "fedsgd", "learning_rate": 1.0},
            limits=[{"level": level, "definition": "classical", "epsilon": 20.0, "delta": 1e-5}],
            noise_multiplier=8.0,
            sampling_rate=0.1,
            masking=masking if self.masked else None,
        )


class CountingTransport(Transport):
    """Counts requests and the bytes of bodies in both directions."""

    requests = up = down = 0

    def send(self, call: Call[Any], headers: Mapping[str, str]) -> Answer:
        answer = super().send(call, headers)
        self.requests += 1
        self.up, self.down = self.up + len(call.body), self.down + len(answer.body)
        return answer


class Meter:
    """Wall and processor seconds from the first hospital that begins a round to the last that ends it."""

    def __init__(self, case: Case, pid: int) -> None:
        self._clients, self._pid, self._lock = case.clients, pid, threading.Lock()
        self._begun, self._ended = Counter[int](), Counter[int]()
        self._at: dict[int, tuple[float, float]] = {}
        self.rounds: list[dict[str, float]] = []

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        with self._lock:
            self._begun[number] += 1
            if self._begun[number] == 1:
                self._at[number] = self._now()
        yield
        with self._lock:
            self._ended[number] += 1
            if self._ended[number] == self._clients:
                (wall, cpu), (wall_before, cpu_before) = self._now(), self._at[number]
                self.rounds.append({"seconds": wall - wall_before, "cpu_seconds": cpu - cpu_before})

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), processor_seconds(self._pid)

    def median(self, what: str) -> float:
        return statistics.median(round[what] for round in self.rounds)


@dataclass
class Hospital:
    """One member of the study, with a connection of its own."""

    case: Case
    membership: Membership
    credentials: Signature
    folder: Path

    def __post_init__(self) -> None:
        connection = Connection(url=self.membership.url, read_seconds=300.0)
        self.transport = CountingTransport(connection)
        self.client = Client(connection, self.credentials, transport=self.transport)
        self.store = FileStore(self.folder / "secure-sum")
        self.settings, self.model = self.case.settings(), spec_of(self.case.model)

    def take_part(self, body: bytes, meter: Meter) -> None:
        """Until the study has ended."""
        while True:
            try:
                given = self.client.assignment(self.case.name)
            except ConflictError as error:
                if error.code == "study-finished":
                    return
                raise
            if given is None:
                continue
            with meter.round(given.assignment.round):
                if self.case.masked:
                    self._masked(given.assignment, given.session, body)
                else:
                    self.client.put_update(self.case.name, given.assignment.round, self.membership.client, body)

    def _masked(self, assignment: AssignmentBody, session: SignedParameters | None, body: bytes) -> None:
        plan = SessionPlan.of(
            self.settings,
            self.model,
            study=self.case.name,
            round=assignment.round,
            roster=assignment.roster_sha256,
            model=assignment.model.sha256,
        )
        round = MaskedRound(self.client, self._party(assignment), plan, self.store)
        assert session is not None
        (spec,) = round.prepare(session)
        round.complete({UPDATE_VECTOR: np.frombuffer(body, spec.dtype)})

    def _party(self, assignment: AssignmentBody) -> Party:
        roster = self.client.roster(self.case.name)
        return Party(
            client=self.membership.client,
            identity=self.credentials.key,
            coordinator=decode_public_key(self.membership.coordinator_key),
            roster={member.client: decode_public_key(member.public_key) for member in roster.members},
            roster_fingerprint=assignment.roster_sha256,
            floors=Floors(1, 4, False),
        )

    def close(self) -> None:
        self.client.close()
        self.store.close()


def open_study(coordinator: LiveCoordinator, folder: Path, case: Case) -> list[Hospital]:
    hospitals: list[Hospital] = []
    with coordinator.operator() as operator, Client(Connection(url=coordinator.origin)) as anonymous:
        operator.create_study(StudyCreate(study=case.name, settings=case.settings()))
        operator.put_initial_model(case.name, encode(case.model))
        for number in range(case.clients):
            token = operator.invite(case.name, InvitationCreate(client=f"client-{number:03d}")).token
            home = folder / f"{case.name}-{number}"
            identity = Identity.create(home)
            membership = enrol(anonymous, identity, token)
            credentials = Signature(identity.key, membership.client, case.name, membership.origin)
            hospitals.append(Hospital(case, membership, credentials, home))
    return hospitals


def body_of(case: Case) -> bytes:
    """What every hospital sends: words to be masked, or a whole update."""
    if case.masked:
        dtype = np.dtype("<u4" if case.values > TERMS else "<u8")
        return (np.arange(case.values) % 1000).astype(dtype).tobytes()
    return encode({UPDATE + name: np.full_like(array, 1e-9) for name, array in case.model.items()})


def measure(coordinator: LiveCoordinator, case: Case) -> dict[str, Any]:
    """One study from its start to its end."""
    assert coordinator.process is not None
    pid = coordinator.process.popen.pid
    with tempfile.TemporaryDirectory(dir=coordinator.home) as folder:
        hospitals = open_study(coordinator, Path(folder), case)
        meter, body = Meter(case, pid), body_of(case)
        with coordinator.operator() as operator:
            operator.move_study(case.name, "start")
        with ThreadPoolExecutor(case.clients) as pool:
            for done in [pool.submit(hospital.take_part, body, meter) for hospital in hospitals]:
                done.result()
        for hospital in hospitals:
            hospital.close()
    each = case.clients * len(meter.rounds)
    counted = {
        f"{what}_each": sum(getattr(hospital.transport, what) for hospital in hospitals) / each
        for what in ("requests", "up", "down")
    }
    row = {**asdict(case), "seconds": meter.median("seconds"), "cpu_seconds": meter.median("cpu_seconds")}
    row |= {"cpu_ms_each": 1e3 * row["cpu_seconds"] / case.clients, **counted, "rounds": meter.rounds}
    return row | {"server_peak_mib": peak_mib(pid)}


def compare(database: str, url: str | None, clients: int, values: int) -> dict[str, Any]:
    """One masked study and the same without masks, on a coordinator of their own."""
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as home, Processes() as processes:
        coordinator = LiveCoordinator(Path(home), processes, url)
        coordinator.prepare()
        coordinator.serve(log_level="WARNING")
        for kind, masked in (("plain", False), ("masked", True)):
            rows[kind] = measure(coordinator, Case(database, clients, values, masked))
    masked, plain = rows["masked"], rows["plain"]
    ratios = {f"{clock}_ratio": masked[clock] / plain[clock] for clock in ("seconds", "cpu_seconds")}
    print(
        f"{database:9} {clients:4} x {values:<8} {masked['seconds']:8.2f} {masked['cpu_ms_each']:12.1f} "
        f"{plain['cpu_ms_each']:10.1f} {masked['up_each']:10.0f} {masked['down_each']:10.0f} "
        f"{masked['requests_each']:9.1f} {ratios['seconds_ratio']:8.1f}",
        flush=True,
    )
    return {"database": database, "clients": clients, "values": values, **rows, **ratios}


def run(database: str, sizes: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    if database == "sqlite":
        return [compare(database, None, *size) for size in sizes]
    with embedded_postgres() as url:
        return [compare(database, fresh(url), *size) for size in sizes]


def fresh(url: str) -> str:
    """The address of a new, empty database on the same PostgreSQL."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    name = f"sessions_{uuid.uuid4().hex}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgres"), default=["sqlite"])
    parser.add_argument("--small", action="store_true", help="a few hospitals, to see that everything runs")
    options = parser.parse_args()
    sizes = [(5, TERMS), (5, 10**5)] if options.small else [*((n, TERMS) for n in (10, 30, 100)), (100, UPDATES)]
    os.environ |= RETAIN
    print(
        f"{'':9} {'clients x values':15} {'s':>6} {'cpu ms each':>12} {'plain':>10} {'up each':>10} "
        f"{'down each':>10} {'requests':>9} {'s/plain':>8}"
    )
    rows = [row for database in options.databases for row in run(database, sizes)]
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    if not options.small:
        RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
