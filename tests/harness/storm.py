"""Coordinators and hospitals that really run, under fire: the storm that `tests.harness.chaos` lets blow."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sqlalchemy import select

import client_sdk.study.participation  # noqa: F401 - it and the next register their failpoints
import server.app  # noqa: F401
from accounting.budget.budget import Budget
from client_sdk.api.client import Client
from client_sdk.api.config import read_secret
from client_sdk.errors import WardroundError
from server.db.session import Database
from server.db.tables import LeaseRow, StudyRow
from study_protocol.study.any_settings import AnySettings
from study_protocol.wire import failpoints
from study_protocol.wire.failpoints import EXIT_CODE
from tests.harness import byte_laws, laws, tiny
from tests.harness.faults import JumpingClock, SmallDisk, UnreliableNetwork, can_mount, lock_sqlite, paused
from tests.harness.object_store import ObjectStore
from tests.harness.outages import LiveWorker, end_connections, restart_postgres
from tests.harness.study_kinds import SIX, StudyKind, asks, hospitals_of, policy_of, question, settings_of
from wardround.demo.live import LiveCoordinator, LiveHospital, open_study
from wardround.demo.processes import Process, Processes, ProcessFailed

LEASE_SECONDS = "0.5"
# Two clocks that have jumped apart are still within what a hospital believes.
JUMPS = (-120, -45, 0, 45, 120)
PLAIN = {"alpha": 12, "beta": 9}
END_SECONDS = 300.0
MOST_ROUNDS = 100
KILLED = -9
# How long to wait for a coordinator to take the study's lease.
HOLDER_SECONDS = 3.0
# Between two faults of processes, at most: so many starts of a coordinator.
LULL = 3.0
# How often, among the faults of processes.
FAULTS = {"kill": 50, "pause": 20, "full disk": 10, "clock jump": 10, "database": 10}
# Of starts after a kill: those that die at a failpoint, at its first, second or third passage.
FAILPOINT_RATE = 0.6
# Until a study that waits for more questions is ended.
QUIET_SECONDS = 3.0


class Storm:
    """Two coordinators on one database and the hospitals of one study at a time, under fire.

    store         where blobs lie; then nothing but the database is shared, and it must be PostgreSQL
    apart         workers in processes of their own beside the two, which then are APIs alone
    kinds         how often each fault of processes, among all of them
    network_rate  how often a fault of the network, among all requests
    """

    def __init__(
        self,
        home: Path,
        database_url: str | None,
        processes: Processes,
        seed: int,
        *,
        store: ObjectStore | None = None,
        apart: bool = False,
        kinds: Mapping[str, int] = FAULTS,
        network_rate: float = 0.5,
    ) -> None:
        self.home, self.processes = home, processes
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.clocks: dict[str, JumpingClock] = {}
        self.disks: dict[str, SmallDisk] = {}
        self._stack = ExitStack()
        shared = home / "coordinator"
        # Without a shared disk the second one is given the signing key and nothing else.
        second_home = None if store is None else home / "second-coordinator"
        self.disk_of = {
            "first coordinator": "coordinator",
            "second coordinator": "coordinator" if second_home is None else "second",
        }
        self._disk("coordinator", shared)
        if second_home is not None:
            self._disk("second", second_home)
        store_variables = {} if store is None else store.settings(store.bucket())
        first = LiveCoordinator(shared, processes, database_url=database_url, settings=store_variables)
        if second_home is not None:
            store_variables = store_variables | {"signing_key_path": str(shared / "coordinator.key")}
        second = LiveCoordinator(second_home or shared, processes, database_url=database_url, settings=store_variables)
        self.network = UnreliableNetwork((first.address, second.address), seed, network_rate)
        self._stack.callback(self.network.close)
        self.coordinators = {"first coordinator": first, "second coordinator": second}
        if apart:
            # Homes, keys and settings of the two; nobody asks them anything.
            self.disk_of |= {"first worker": "coordinator", "second worker": self.disk_of["second coordinator"]}
            self.coordinators["first worker"] = LiveWorker(first.home, processes, database_url, settings=first.settings)
            self.coordinators["second worker"] = LiveWorker(
                second.home, processes, database_url, settings=second.settings
            )
        self.apart, self.url = apart, database_url
        self.hits = home / "failpoints.log"
        # Coordinators' processes that die at a failpoint if they pass it.
        self.doomed = set[str]()
        for name, coordinator in self.coordinators.items():
            # Hospitals sign one origin, whichever of the two is asked.
            coordinator.public_origin = self.network.address
            coordinator.variables = self._clock(name).variables
        self.database = Database(database_url or f"sqlite:///{shared / 'wardround.db'}")
        self._stack.callback(self.database.dispose)
        self.struck: set[str] = set()
        self.start_seconds, self.kinds = 0.0, kinds

    def close(self) -> None:
        self._stack.close()

    def begin(self) -> None:
        self.coordinators["first coordinator"].prepare()
        for name in self.coordinators:
            self._serve(name)

    def study(self, number: int, kind: StudyKind, rounds: int) -> int:
        """One study of about so many rounds; returns those that were charged.

        Raises:
            LawBroken, LedgerNotExtended, ProcessFailed.
        """
        settings = settings_of(kind, self.random, rounds)
        return self.run(f"storm-{number}", settings, hospitals_of(kind), questions=rounds * asks(kind)).charged_rounds

    def run(self, name: str, settings: AnySettings, names: Mapping[str, int], *, questions: int = 0) -> Budget:
        """One study from start to end, and its laws.

        names      hospital -> its patients
        questions  how many are asked meanwhile

        Raises:
            LawBroken, LedgerNotExtended, ProcessFailed.
        """
        self.struck.clear()
        members = tiny.hospitals(self.home / name, names, self.processes)
        hospitals = {key: replace(member, variables=self._clock(key).variables) for key, member in members.items()}
        for key, hospital in hospitals.items():
            self._disk(f"{name} {key}", hospital.home)
        with self.coordinators["first coordinator"].operator(patience_seconds=END_SECONDS) as operator:
            policy = policy_of(name, settings)
            # Asked in the thread that starts again whatever has died, and while nobody may be there to answer.
            operator.on_pause = lambda reason, _: self._revive(name)
            open_study(operator, name, "storm", settings, hospitals, self.network.address, policy=policy)
            joined = {key: self._join(name, hospital) for key, hospital in hospitals.items()}
            self.network.armed = True
            self._fire(operator, name, hospitals, joined, questions)
            self.network.armed = False
            for doomed in sorted(self.doomed):
                coordinator = self.coordinators[doomed].process
                if coordinator is not None:
                    coordinator.kill()
                self._serve(doomed)
            self._end(name, hospitals, joined)
            homes = {key: hospital.home for key, hospital in hospitals.items()}
            budget = laws.check(operator, name, homes, sent=self.network.sent)
        byte_laws.no_secret_is_logged(self._logs(hospitals), self._secrets(hospitals))
        return budget

    def _logs(self, hospitals: Mapping[str, LiveHospital]) -> list[Path]:
        return [
            *(process_owner.log for process_owner in self.coordinators.values()),
            *(process_owner.log for process_owner in hospitals.values()),
        ]

    def _secrets(self, hospitals: Mapping[str, LiveHospital]) -> set[str]:
        first = self.coordinators["first coordinator"]
        keys = [first.home / "coordinator.key", *(hospital.home / "identity.key" for hospital in hospitals.values())]
        secrets = {read_secret(path).split("_", 2)[2] for path in (first.operator_key_file, first.viewer_key_file)}
        return secrets | {word for path in keys for word in byte_laws.spellings(path.read_bytes())}

    def _fire(
        self,
        operator: Client,
        study: str,
        hospitals: dict[str, LiveHospital],
        joined: dict[str, Process],
        questions: int,
    ) -> None:
        strike: dict[str, Callable[[str], bool]] = {
            "kill": lambda target: self._kill(study, target, hospitals, joined),
            "pause": lambda target: self._pause(study, target, joined),
            "full disk": lambda target: self._full(study, target),
            "clock jump": self._jump,
            "database": lambda _: self._strike_database(),
        }
        settings, queries_sent = operator.study(study).settings, 0
        rounds, moved = 0, time.monotonic()
        while not self._finished(operator, study):
            # Long enough, on average, for a round between two faults, however slow the machine.
            time.sleep(self.random.uniform(0.0, LULL * self.start_seconds))
            target = self._target(study, hospitals)
            if self.kinds:
                (kind,) = self.random.choices(tuple(self.kinds), tuple(self.kinds.values()))
                if strike[kind](target):
                    self._count(kind, study, target)
            self._restart(study, hospitals, joined)
            statement = operator.budget(study)
            # What a person does once the faults are over; here they never are.
            if statement.pause_reason is not None:
                # Hospitals that have paid for rounds that were given back refuse those past their own last one.
                operator.move_study(study, "stop" if statement.round > MOST_ROUNDS else "resume")
            if queries_sent < questions:
                queries_sent += 1
                operator.ask_query(study, question(queries_sent))
            reached = statement.round
            if reached > rounds:
                rounds, moved = reached, time.monotonic()
            elif settings.statistics is not None and time.monotonic() > moved + QUIET_SECONDS * self.start_seconds:
                self._stop_where_nothing_is_left(operator, study, settings)
            if time.monotonic() > moved + END_SECONDS:
                raise ProcessFailed(f"{study} stands still; the coordinator", None, self.coordinators[target].log)

    def _stop_where_nothing_is_left(self, operator: Client, study: str, settings: AnySettings) -> None:
        """Where questions are left the study waits for them until a person ends it."""
        if laws.has_trained(operator, study, settings) and not laws.is_asked(operator, study):
            operator.move_study(study, "stop")

    def _target(self, study: str, hospitals: Mapping[str, LiveHospital]) -> str:
        """Every second time the coordinator that works on the study: nobody else's fault hands a lease over."""
        anybody = self.random.choice([*self.coordinators, *hospitals])
        return self._working(study) or anybody if self.random.random() < 0.5 else anybody

    def _working(self, study: str) -> str | None:
        """Who holds the study's lease, or is the next to hold it soon: between two pieces of work nobody does."""
        end = time.monotonic() + HOLDER_SECONDS
        while time.monotonic() < end:
            holder = self._owner(study)
            for name, candidate in self.coordinators.items():
                if candidate.process is not None and _of(candidate.process, holder):
                    return name
            time.sleep(0.01)
        return None

    def _kill(self, study: str, target: str, hospitals: dict[str, LiveHospital], joined: dict[str, Process]) -> bool:
        process = self._process(target, joined)
        if process is None or process.ended() is not None:
            return False
        process.kill()
        if target in self.coordinators:
            self._watch(study, target, process, self.random.uniform(0.0, 1.0))
            self._serve(target)
        else:
            joined[target] = self._join(study, hospitals[target])
        return True

    def _pause(self, study: str, target: str, joined: dict[str, Process]) -> bool:
        process = self._process(target, joined)
        if process is None or process.ended() is not None:
            return False
        with paused(process):
            self._watch(study, target, process, self.random.uniform(0.1, 2.0))
        return True

    def _full(self, study: str, target: str) -> bool:
        disk = self.disks.get(self.disk_of.get(target, f"{study} {target}"))
        if disk is None:
            return False
        self.struck |= {name for name, of in self.disk_of.items() if of == self.disk_of.get(target)} | {target}
        with disk.full():
            time.sleep(self.random.uniform(0.1, 1.5))
        return True

    def _jump(self, target: str) -> bool:
        seconds = self.random.choice(JUMPS)
        if target in self.coordinators:
            # Both go together, but for more than a lease: far apart, no hospital could know which one to follow.
            self.struck |= {*self.coordinators, *SIX}
            for name in self.coordinators:
                self.clocks[name].jump(seconds)
            seconds += self.random.choice((-2, 0, 2))
        self.struck.add(target)
        self.clocks[target].jump(seconds)
        return True

    def _restart(self, study: str, hospitals: dict[str, LiveHospital], joined: dict[str, Process]) -> None:
        """Start again whoever a full disk or a clock has ended, as a person would; any other end is an error."""
        for name, process in joined.items():
            code = process.ended()
            if code in (None, 0, KILLED):
                continue
            if code == EXIT_CODE:
                self._died_at_a_failpoint(study, name)
                joined[name] = self._join(study, hospitals[name])
                continue
            # What a hospital refuses, or does not trust, is never the fault of a disk or a clock.
            if name not in self.struck or code in (3, 4):
                process.check()
            self._count("started again", study, name)
            joined[name] = self._join(study, hospitals[name])
        self._revive(study)

    def _revive(self, study: str) -> None:
        for name, coordinator in self.coordinators.items():
            if coordinator.process is not None and coordinator.process.ended() is not None:
                if coordinator.process.ended() == EXIT_CODE:
                    self._died_at_a_failpoint(study, name)
                    self._serve(name)
                    continue
                if name not in self.struck:
                    coordinator.process.check()
                self._count("started again", study, name)
                self._serve(name)

    def _end(self, study: str, hospitals: dict[str, LiveHospital], joined: dict[str, Process]) -> None:
        end = time.monotonic() + END_SECONDS
        while any(process.ended() != 0 for process in joined.values()):
            self._restart(study, hospitals, joined)
            if time.monotonic() > end:
                raise ProcessFailed(f"a hospital of {study}", None, next(iter(hospitals.values())).log)
            time.sleep(0.1)

    def _count(self, fault: str, study: str, victim: str) -> None:
        self.counts[fault] += 1
        line = {"at": time.time(), "what": fault, "study": study, "whom": victim}
        with (self.home / "faults.log").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _died_at_a_failpoint(self, study: str, name: str) -> None:
        self._count("kill at a failpoint", study, name)

    def _until(self, prefixes: Sequence[str]) -> dict[str, str | Path]:
        """Where the process that is started now dies, if it passes there."""
        if not self.network.armed or self.random.random() >= FAILPOINT_RATE:
            return {}
        point = self.random.choice([name for prefix in prefixes for name in failpoints.names(prefix)])
        return {"failpoint": f"{point}:{self.random.randint(1, 3)}", "failpoint_log": self.hits}

    def _strike_database(self) -> bool:
        """PostgreSQL ends every connection, or is killed and started again. SQLite's file is locked for a moment."""
        if self.url is None:
            lock_sqlite(self.home / "coordinator" / "wardround.db", self.random.choice((0.1, 0.5, 1.0, 2.0)))
        elif self.random.random() < 0.5:
            end_connections(self.url)
        else:
            restart_postgres(self.url)
        return True

    def _watch(self, study: str, target: str, struck: Process, seconds: float) -> None:
        """Wait so long; if `struck` held the study's lease, until the other coordinator has it, and count that."""
        begun, peers = (
            time.monotonic(),
            [coordinator for name, coordinator in self.coordinators.items() if name != target],
        )
        lease_owner = _of(struck, self._owner(study))
        while lease_owner and time.monotonic() < begun + max(seconds, HOLDER_SECONDS):
            now = self._owner(study)
            if any(peer.process is not None and _of(peer.process, now) for peer in peers):
                self._count("take-over", study, target)
                break
            time.sleep(0.02)
        time.sleep(max(0.0, begun + seconds - time.monotonic()))

    def _owner(self, study: str) -> str | None:
        statement = (
            select(LeaseRow.owner).join(StudyRow, StudyRow.id == LeaseRow.study_id).where(StudyRow.name == study)
        )
        return self.database.read("who-holds-it", lambda tx: tx.session.scalar(statement))

    def _finished(self, operator: Client, study: str) -> bool:
        try:
            return operator.study(study).state == "finished"
        except WardroundError:
            return False

    def _process(self, target: str, joined: dict[str, Process]) -> Process | None:
        return self.coordinators[target].process if target in self.coordinators else joined[target]

    def _serve(self, name: str) -> None:
        begun = time.monotonic()
        api, works = not isinstance(self.coordinators[name], LiveWorker), not self.apart or "worker" in name
        passed = ["api."] * api + ["worker."] * works
        more = {"worker": "true" if works else "false"} if api else {}
        until = self._until(passed)
        self.doomed.discard(name)
        if until:
            self.doomed.add(name)
        try:
            self.coordinators[name].serve(lease_seconds=LEASE_SECONDS, **more, **until)
        except ProcessFailed as error:
            # It may pass its failpoint before anybody has asked it anything; what is dead is started again.
            if error.code != EXIT_CODE:
                raise
        self.start_seconds = time.monotonic() - begun

    def _join(self, study: str, hospital: LiveHospital) -> Process:
        return hospital.join(study, self.network.address, **self._until(["hospital."]))

    def _clock(self, name: str) -> JumpingClock:
        return self.clocks.setdefault(name, JumpingClock(self.home / f"{name.replace(' ', '-')}.clock"))

    def _disk(self, name: str, folder: Path) -> None:
        if can_mount():
            self.disks[name] = SmallDisk(folder)
            self._stack.callback(self.disks[name].close)


def _of(process: Process, holder: str | None) -> bool:
    """Is this lease the process's?"""
    return f":{process.popen.pid}:" in (holder or "")
