"""Studies in a storm inside one process, one after the other: see `tests.harness.inside`.

python -m tests.harness.inside_storm --minutes 10 --seed 1 [--postgres] [--layout apart] [--record]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from rich.console import Console
from sqlalchemy.exc import DBAPIError

from accounting.budget.budget import Budget
from client_sdk.api import calls
from client_sdk.errors import AuthenticationError, ClockSkewError, LedgerNotWritten, RosterNotPinned, WardroundError
from private_learning.tasks import load
from private_learning.training.weights import weights_of
from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.services.people.keys import create_key
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import InvitationCreate, StudyCreate
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode
from tests.harness import byte_laws, laws
from tests.harness.chaos import record
from tests.harness.faults import lock_sqlite
from tests.harness.injected import Chance, FailingStatements, Killed, Wire, deaths
from tests.harness.inside import (
    ORIGIN,
    Clock,
    CoordinatorProcess,
    HospitalProcess,
    Weather,
    hurrying,
    logging_into,
    operator_of,
    stopped_afterwards,
)
from tests.harness.law_broken import LawBroken
from tests.harness.outages import end_connections
from tests.harness.power import WatchedDisk, watched
from tests.harness.study_kinds import KINDS, StudyKind, asks, hospitals_of, policy_of, question, settings_of
from wardround.demo.live import compare_and_pin, embedded_postgres

Layout = Literal["together", "apart"]
RECORD = Path(__file__).parents[2] / "research" / "benchmarks" / "results" / "chaos_inside.json"
STILL_SECONDS = 180.0
QUIET_SECONDS = 1.0
TICK_SECONDS = 0.03
JUMPS = (-120, -45, 0, 45, 120)
# Of ticks.
RATES = {
    "clock jump": 0.02,
    "power cut of the coordinator": 0.01,
    "connections of the database ended": 0.03,
    "operator key rotated": 0.005,
}
# Of starts after a death.
KEY_RATE = 0.06


class StoodStill(Exception):
    """No round was charged for so long that nothing is expected any more."""


class InsideStorm:
    """Coordinators on one database, and the hospitals of one study at a time.

    layout   together: two processes, each an API with a worker in it; apart: two APIs and two workers
    """

    def __init__(
        self, home: Path, database_url: str | None, seed: int, layout: Layout, weather: Weather | None = None
    ) -> None:
        self.home, self.chance, self.weather = home, Chance(seed), weather or Weather()
        self.random, self.layout = self.chance.source, layout
        self.wire, self.clock = Wire(self.chance, self.weather.network_rate), Clock()
        self.statements = FailingStatements(self.chance, self.weather.statement_rate, self.weather.commit_rate)
        self._stack = ExitStack()
        self._stack.enter_context(hurrying())
        self._stack.enter_context(byte_laws.keeping_finished())
        folder = home / "coordinator"
        url = database_url or f"sqlite:///{folder / 'wardround.db'}"
        self.settings = Settings(
            home=folder,
            database_url=url,
            origin=ORIGIN,
            port=0,
            worker=False,
            watch_seconds=0.05,
            long_poll_seconds=1.0,
        )
        self.log = home / "log.jsonl"
        home.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(logging_into(self.log))
        self.secrets: set[str] = set()
        self.homes: dict[str, Path] = {}
        self.started_again, self.lost = 0, Counter[str]()
        prepare(self.settings)
        self.disk = WatchedDisk(folder, self._is_full)
        self._stack.enter_context(watched(self.disk))
        self._stack.enter_context(deaths(self.chance, self.weather.stall_rate))
        self._stack.callback(self.wire.close)
        roles = [(True, True)] * 2 if layout == "together" else [(True, False)] * 2 + [(False, True)] * 2
        self.processes = [
            CoordinatorProcess(
                f"coordinator-{place}",
                self.settings,
                self.wire,
                self.clock,
                self.statements,
                api=api,
                works=works,
                kill_rate=self.weather.coordinator_kill_rate,
            )
            for place, (api, works) in enumerate(roles)
        ]
        self.operator = operator_of(self.wire, self._new_key(), self._start_again)
        for process in self.processes:
            process.start()

    def close(self) -> None:
        self.chance.armed = False
        self.operator.close()
        for process in self.processes:
            process.stop()
        self._stack.close()

    def _is_full(self) -> bool:
        return self.chance.happens("sync refused by a full disk", self.weather.full_disk_rate)

    def _new_key(self) -> str:
        coordinator = open_coordinator(self.settings)
        key = create_key(coordinator, ApiKeyCreate(role="administrator", name="Ada")).key or ""
        coordinator.database.dispose()
        self.secrets.add(key.split("_", 2)[2])
        self.key = key
        return key

    def run(self, name: str, kind: StudyKind, rounds: int, settings: AnySettings | None = None) -> Budget:
        """One study from start to end, and its laws. settings: those that the seed chooses, unless given.

        Raises:
            LawBroken, StoodStill, and whatever ended a hospital that no fault had struck.
        """
        settings = settings or settings_of(kind, self.random, rounds)
        hospitals = {
            key: HospitalProcess(
                key, self.home / name / key, rows, place, self.wire, self.weather.hospital_kill_rate, self._is_full
            )
            for place, (key, rows) in enumerate(hospitals_of(kind).items())
        }
        self._rotated = False
        disks = watched(*(hospital.disk for hospital in hospitals.values()))
        with stopped_afterwards(hospitals.values()), disks:
            self.operator.create_study(StudyCreate(study=name, title="storm", settings=settings))
            if isinstance(settings, StudySettings):
                model = load(settings.training.task, settings.training.task_parameters).model()
                self.operator.put_initial_model(name, encode(weights_of(model)))
            for key, hospital in hospitals.items():
                token = self.operator.invite(name, InvitationCreate(client=key)).token
                self.secrets.add(token.split("_", 2)[2].rsplit("_", 1)[0])
                hospital.enrol(token, policy_of(name, settings))
            if settings.privacy.masking is not None:
                compare_and_pin(name, [hospital.hospital() for hospital in hospitals.values()])
            self.operator.move_study(name, "start")
            for hospital in hospitals.values():
                hospital.start(name)
            self.chance.armed = True
            self._weather(name, kind, settings, rounds, hospitals)
            self.chance.armed = False
            self._end(name, hospitals)
        for hospital in hospitals.values():
            self.lost += hospital.disk.counts
        homes = self.homes = {key: hospital.directory for key, hospital in hospitals.items()}
        budget = laws.check(self.operator, name, homes, sent=self.wire.sent)
        self._know_secrets(hospitals)
        byte_laws.no_secret_is_logged([self.log], self.secrets)
        return budget

    def _know_secrets(self, hospitals: Mapping[str, HospitalProcess]) -> None:
        keys = [
            self.settings.home / "coordinator.key",
            *(hospital.directory / "identity.key" for hospital in hospitals.values()),
        ]
        self.secrets |= {word for path in keys for word in byte_laws.spellings(path.read_bytes())}
        self.secrets |= {f"patient-of-{key}-{number}" for key in hospitals for number in range(3)}

    def _weather(
        self, name: str, kind: StudyKind, settings: AnySettings, rounds: int, hospitals: Mapping[str, HospitalProcess]
    ) -> None:
        queries_sent, reached, moved = 0, -1, time.monotonic()
        while True:
            time.sleep(TICK_SECONDS)
            self._restart(name, hospitals)
            self._strike(hospitals)
            state = self.operator.study(name).state
            if state == "finished":
                return
            statement = self.operator.budget(name)
            if statement.pause_reason is not None:
                # A hospital that has paid for rounds that were given back refuses those past its own last one, and a
                # person who sees that ends the study.
                self.operator.move_study(name, "stop" if statement.round > 4 * rounds else "resume")
            if asks(kind) and queries_sent < rounds and self.random.random() < 0.1:
                queries_sent += 1
                self.operator.ask_query(name, question(queries_sent))
            if statement.round > reached:
                reached, moved = statement.round, time.monotonic()
            # Where questions are left the study waits for them until a person ends it.
            elif settings.statistics is not None and time.monotonic() > moved + QUIET_SECONDS:
                done = queries_sent >= rounds or not asks(kind)
                if done and laws.has_trained(self.operator, name, settings) and not laws.is_asked(self.operator, name):
                    self.operator.move_study(name, "stop")
            if time.monotonic() > moved + STILL_SECONDS:
                raise StoodStill(f"{name} stands still in round {reached}; see {self.log}")

    def _restart(self, study: str, hospitals: Mapping[str, HospitalProcess]) -> None:
        self._start_again()
        for hospital in hospitals.values():
            if hospital.is_running or hospital.ended:
                continue
            if isinstance(hospital.error, Killed):
                hospital.disk.cut(self.random)
            elif isinstance(hospital.error, RosterNotPinned) and self._rotated:
                self._pin_again(study, hospitals)
            # Clocks that jumped apart and full disks end a hospital, and a person starts it again.
            elif isinstance(hospital.error, ClockSkewError | LedgerNotWritten | OSError):
                self.started_again += 1
            else:
                raise hospital.error or AssertionError
            if self.chance.happens("hospital's key rotated", KEY_RATE):
                self._rotate(study, hospital, hospitals)
            hospital.start(study)

    def _start_again(self) -> None:
        for process in self.processes:
            if process.victim.dead:
                process.stop()
                self._start(process)

    def _start(self, process: CoordinatorProcess) -> None:
        """As whatever supervises services: again and again until it starts."""
        while True:
            try:
                return process.start()
            except (DBAPIError, OSError):
                time.sleep(TICK_SECONDS)

    def _rotate(self, study: str, hospital: HospitalProcess, hospitals: Mapping[str, HospitalProcess]) -> None:
        """As a person does it: by a command of its own, and again where the command ends early."""
        self._rotated = True
        while True:
            try:
                hospital.hospital().rotate_key()
                break
            except (WardroundError, OSError):
                time.sleep(TICK_SECONDS)
        if self.operator.study(study).settings.privacy.masking is not None:
            self._pin_again(study, hospitals)

    def _pin_again(self, study: str, hospitals: Mapping[str, HospitalProcess]) -> None:
        armed, self.chance.armed = self.chance.armed, False
        try:
            compare_and_pin(study, [hospital.hospital() for hospital in hospitals.values()])
        finally:
            self.chance.armed = armed

    def _strike(self, hospitals: Mapping[str, HospitalProcess]) -> None:
        for kind, rate in RATES.items():
            if self.chance.happens(kind, rate):
                self._strikes[kind](hospitals)

    @property
    def _strikes(self) -> Mapping[str, Callable[[Mapping[str, HospitalProcess]], None]]:
        return {
            "clock jump": self._jump,
            "power cut of the coordinator": lambda _: self._cut_power(),
            "connections of the database ended": lambda _: self._end_connections(),
            "operator key rotated": lambda _: self._rotate_operator(),
        }

    def _jump(self, hospitals: Mapping[str, HospitalProcess]) -> None:
        victim = self.random.choice([None, *hospitals])
        clock = self.clock if victim is None else hospitals[victim].clock
        clock.ahead = self.random.choice(JUMPS)

    def _cut_power(self) -> None:
        for process in self.processes:
            process.victim.dead = True
        for process in self.processes:
            process.stop()
        self.disk.cut(self.random)
        for process in self.processes:
            self._start(process)

    def _end_connections(self) -> None:
        """Of PostgreSQL all at once; SQLite's file is locked by another process's transaction for a while."""
        url = self.settings.database()
        if url.get_backend_name() == "sqlite":
            lock_sqlite(Path(str(url.database)), self.chance.uniform(0.05, 0.5))
            return
        end_connections(url.render_as_string(hide_password=False))

    def _rotate_operator(self) -> None:
        """A successor, then the end of the old key, which opens nothing any more."""
        armed, self.chance.armed = self.chance.armed, False
        try:
            old, before = self.operator, self.key
            self.operator = operator_of(self.wire, self._new_key(), self._start_again)
            self.operator.send(calls.revoke_api_key(before.split("_", 2)[1]))
            try:
                old.studies()
            except AuthenticationError:
                old.close()
                return
            raise LawBroken("an operator's key that was ended still opens the list of studies")
        finally:
            self.chance.armed = armed

    def _end(self, name: str, hospitals: Mapping[str, HospitalProcess]) -> None:
        end = time.monotonic() + STILL_SECONDS
        while not all(hospital.ended for hospital in hospitals.values()):
            self._restart(name, hospitals)
            if time.monotonic() > end:
                raise StoodStill(f"a hospital of {name} does not end")
            time.sleep(TICK_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=6, help="of each study")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--layout", choices=get_args(Layout), default="together", help="apart: APIs and workers")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of studies, in turn")
    parser.add_argument("--record", action="store_true", help=f"append the run to {RECORD.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console, home = Console(), Path(tempfile.mkdtemp(prefix="wardround-inside-"))
    console.print(f"files in {home}")
    with embedded_postgres() if options.postgres else nullcontext(None) as url:
        storm = InsideStorm(home, url, options.seed, options.layout)
        run = _blow(storm, options, console)
        storm.close()
    console.print_json(data=run)
    if options.record:
        record(run, RECORD)
    shutil.rmtree(home)
    return 0


def _blow(storm: InsideStorm, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Studies until the time is over. What is returned counts whole studies only."""
    began, studies, charged = time.monotonic(), Counter[str](), 0
    run: dict[str, Any] = {}
    while not run or time.monotonic() < began + 60 * options.minutes:
        kind = options.kinds[studies.total() % len(options.kinds)]
        charged += storm.run(f"storm-{studies.total() + 1}", kind, options.rounds).charged_rounds
        studies[kind] += 1
        run = {
            "seed": options.seed,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "database": "postgresql" if options.postgres else "sqlite",
            "layout": options.layout,
            "studies": dict(sorted(studies.items())),
            "charged rounds": charged,
            "faults": dict(sorted(storm.chance.counts.items())),
            "ended by a fault and started again": storm.started_again,
            "lost at power cuts": dict(sorted((storm.lost + storm.disk.counts).items())),
        }
        console.print(f"study {studies.total()} ({kind}): every law holds; {storm.chance.counts.total()} faults so far")
    return run


if __name__ == "__main__":
    sys.exit(main())
