"""Inject faults into coordinators and hospitals that really run, and check the laws of every study.

    python -m experiments.chaos --minutes 30 --seed 1 [--rounds 25] [--postgres [--blobs objects]] [--record]

Two coordinators share one database and lease every study from one another; hospitals reach them through a network that
loses, repeats and delays requests. Processes are killed (SIGKILL) and stopped (SIGSTOP), disks filled, clocks put
forward and back. Every second study, on average, is masked, and every second one is ended by its limit instead of its
number of rounds. With `--blobs objects` the two share no disk: models and updates lie in an object store. What is
struck follows the seed; what it meets there does not. A broken law ends the run with an error and leaves every file
where it is, `faults.log` among them. Ctrl-C ends it, too; the studies that had ended count. `--record` appends the run
to `benchmarks/results/chaos.json`. Full disks need root, for small disks in memory; without it there are none.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy import select

from accounting.budget.budget import Budget
from accounting.plan.schemes import SchemeName
from client_sdk.api.client import Client
from client_sdk.errors import WardroundError
from client_sdk.protocol.study.settings import StudySettings
from experiments import laws, tiny
from experiments.faults import JumpingClock, SmallDisk, UnreliableNetwork, can_mount, paused
from experiments.forked import ForkedProcesses
from experiments.live import LiveCoordinator, LiveHospital, embedded_postgres, open_study
from experiments.object_store import ObjectStore
from experiments.processes import Process, Processes, ProcessFailed
from server.db.session import Database
from server.db.tables import LeaseRow, StudyRow

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "chaos.json"
LEASE_SECONDS = "0.5"
# Two clocks that have jumped apart are still within what a hospital believes.
JUMPS = (-120, -45, 0, 45, 120)
PLAIN = {"alpha": 12, "beta": 9}
MASKED = {"alpha": 12, "beta": 9, "gamma": 11, "delta": 10}
END_SECONDS = 300.0
KILLED = -9
# How long to wait for a coordinator to take the study's lease.
HOLDER_SECONDS = 3.0
# Between two faults of processes, at most: so many starts of a coordinator.
LULL = 3.0
# How often, among the faults of processes.
KINDS = {"kill": 55, "pause": 23, "full disk": 11, "clock jump": 11}


class Storm:
    """Two coordinators on one database and the hospitals of one study at a time, under fire.

    store         where blobs lie; then nothing but the database is shared, and it must be PostgreSQL
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
        kinds: Mapping[str, int] = KINDS,
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
        apart = None if store is None else home / "second-coordinator"
        self.disk_of = {
            "first coordinator": "coordinator",
            "second coordinator": "coordinator" if apart is None else "second",
        }
        self._disk("coordinator", shared)
        if apart is not None:
            self._disk("second", apart)
        kept = {} if store is None else store.settings(store.bucket())
        first = LiveCoordinator(shared, processes, database_url=database_url, settings=kept)
        if apart is not None:
            kept = kept | {"signing_key_path": str(shared / "coordinator.key")}
        second = LiveCoordinator(apart or shared, processes, database_url=database_url, settings=kept)
        self.network = UnreliableNetwork((first.address, second.address), seed, network_rate)
        self._stack.callback(self.network.close)
        self.coordinators = {"first coordinator": first, "second coordinator": second}
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

    def study(self, number: int, rounds: int) -> tuple[int, bool]:
        """One study of about so many rounds; returns those that were charged, and whether it was masked.

        Raises:
            LawBroken, LedgerNotExtended, ProcessFailed.
        """
        scheme: SchemeName = self.random.choice(("parallel", "client"))
        masked, by_limit = self.random.random() < 0.5, self.random.random() < 0.5
        names = MASKED if masked else PLAIN
        settings = tiny.study_settings(scheme, len(names), rounds, masked=masked, by_limit=by_limit)
        return self.run(f"storm-{number}", settings, names).charged_rounds, masked

    def run(self, name: str, settings: StudySettings, names: Mapping[str, int]) -> Budget:
        """One study from start to end, and its laws. names: hospital -> its patients.

        Raises:
            LawBroken, LedgerNotExtended, ProcessFailed.
        """
        self.struck.clear()
        made = tiny.hospitals(self.home / name, names, self.processes)
        hospitals = {key: replace(one, variables=self._clock(key).variables) for key, one in made.items()}
        for key, hospital in hospitals.items():
            self._disk(f"{name} {key}", hospital.home)
        with self.coordinators["first coordinator"].operator(patience_seconds=END_SECONDS) as operator:
            open_study(operator, name, "storm", settings, hospitals, self.network.address)
            joined = {key: self._join(name, hospital) for key, hospital in hospitals.items()}
            self.network.armed = True
            self._fire(operator, name, hospitals, joined)
            self.network.armed = False
            self._end(name, hospitals, joined)
            return laws.check(operator, name, {key: hospital.home for key, hospital in hospitals.items()})

    def _fire(
        self, operator: Client, study: str, hospitals: dict[str, LiveHospital], joined: dict[str, Process]
    ) -> None:
        strike: dict[str, Callable[[str], bool]] = {
            "kill": lambda target: self._kill(study, target, hospitals, joined),
            "pause": lambda target: self._pause(study, target, joined),
            "full disk": lambda target: self._full(study, target),
            "clock jump": self._jump,
        }
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
                operator.move_study(study, "resume")
            reached = statement.round
            if reached > rounds:
                rounds, moved = reached, time.monotonic()
            if time.monotonic() > moved + END_SECONDS:
                raise ProcessFailed(f"{study} stands still; the coordinator", None, self.coordinators[target].log)

    def _target(self, study: str, hospitals: Mapping[str, LiveHospital]) -> str:
        """Every second time the coordinator that works on the study: nobody else's fault hands a lease over."""
        anybody = self.random.choice([*self.coordinators, *hospitals])
        return self._working(study) or anybody if self.random.random() < 0.5 else anybody

    def _working(self, study: str) -> str | None:
        """Who holds the study's lease, or is the next to hold it soon: between two pieces of work nobody does."""
        end = time.monotonic() + HOLDER_SECONDS
        while time.monotonic() < end:
            holder = self._owner(study)
            for name, one in self.coordinators.items():
                if one.process is not None and _of(one.process, holder):
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
            self.struck |= {*self.coordinators, *MASKED}
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
            # What a hospital refuses, or does not trust, is never the fault of a disk or a clock.
            if name not in self.struck or code in (3, 4):
                process.check()
            self._count("started again", study, name)
            joined[name] = self._join(study, hospitals[name])
        for name, coordinator in self.coordinators.items():
            if coordinator.process is not None and coordinator.process.ended() is not None:
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

    def _count(self, what: str, study: str, whom: str) -> None:
        self.counts[what] += 1
        line = {"at": time.time(), "what": what, "study": study, "whom": whom}
        with (self.home / "faults.log").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _watch(self, study: str, target: str, struck: Process, seconds: float) -> None:
        """Wait so long; if `struck` held the study's lease, until the other coordinator has it, and count that."""
        begun, others = time.monotonic(), [one for name, one in self.coordinators.items() if name != target]
        held = _of(struck, self._owner(study))
        while held and time.monotonic() < begun + max(seconds, HOLDER_SECONDS):
            now = self._owner(study)
            if any(other.process is not None and _of(other.process, now) for other in others):
                self._count("take-over", study, target)
                break
            time.sleep(0.02)
        time.sleep(max(0.0, begun + seconds - time.monotonic()))

    def _owner(self, study: str) -> str | None:
        wanted = select(LeaseRow.owner).join(StudyRow, StudyRow.id == LeaseRow.study_id).where(StudyRow.name == study)
        return self.database.read("who-holds-it", lambda tx: tx.session.scalar(wanted))

    def _finished(self, operator: Client, study: str) -> bool:
        try:
            return operator.study(study).state == "finished"
        except WardroundError:
            return False

    def _process(self, target: str, joined: dict[str, Process]) -> Process | None:
        return self.coordinators[target].process if target in self.coordinators else joined[target]

    def _serve(self, name: str) -> None:
        begun = time.monotonic()
        self.coordinators[name].serve(lease_seconds=LEASE_SECONDS)
        self.start_seconds = time.monotonic() - begun

    def _join(self, study: str, hospital: LiveHospital) -> Process:
        return hospital.join(study, self.network.address)

    def _clock(self, name: str) -> JumpingClock:
        return self.clocks.setdefault(name, JumpingClock(self.home / f"{name.replace(' ', '-')}.clock"))

    def _disk(self, name: str, folder: Path) -> None:
        if can_mount():
            self.disks[name] = SmallDisk(folder)
            self._stack.callback(self.disks[name].close)


def _of(process: Process, holder: str | None) -> bool:
    """Is this lease the process's?"""
    return f":{process.popen.pid}:" in (holder or "")


def record(run: dict[str, Any], path: Path = RECORD) -> None:
    """Append one run to the record at `path`."""
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    total: Counter[str] = Counter()
    for one in (*runs, run):
        total.update(one["faults"])
    path.write_text(json.dumps({"runs": [*runs, run], "faults": dict(sorted(total.items()))}, indent=1) + "\n")


def _blow(home: Path, url: str | None, options: argparse.Namespace, console: Console) -> dict[str, Any] | None:
    """The run as it stood after its last finished study; None if there is none."""
    began = time.monotonic()
    run: dict[str, Any] | None = None
    studies: Counter[str] = Counter()
    charged = 0
    # The library of the clocks must be there when the process that forks starts.
    with ForkedProcesses(JumpingClock(home / "nobody.clock").variables) as processes:
        store = None
        if options.blobs == "objects":
            store = ObjectStore(home / "object-store.log", processes)
            store.serve()
        storm = Storm(home, url, processes, options.seed, store=store)
        try:
            storm.begin()
            while run is None or time.monotonic() < began + 60 * options.minutes:
                rounds, masked = storm.study(studies.total() + 1, options.rounds)
                studies["masked" if masked else "clear"] += 1
                charged += rounds
                faults = storm.counts + storm.network.counts
                again = faults.pop("started again", 0)
                run = {
                    "seed": options.seed,
                    "minutes": round((time.monotonic() - began) / 60, 1),
                    "database": "sqlite" if url is None else "postgresql",
                    "blobs": options.blobs,
                    "studies": dict(sorted(studies.items())),
                    "charged rounds": charged,
                    "faults": dict(sorted(faults.items())),
                    "ended by a fault and started again": again,
                }
                console.print(f"study {studies.total()}: every law holds after {rounds} rounds; {dict(faults)}")
        except KeyboardInterrupt:
            console.print("stopped: the study under way does not count")
        # Not after a broken law: the files on small disks are kept.
        storm.close()
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=25, help="of each study")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--blobs", choices=("files", "objects"), default="files", help="objects: no disk is shared")
    parser.add_argument("--record", action="store_true", help="append the run to benchmarks/results/chaos.json")
    options = parser.parse_args()
    if options.blobs == "objects" and not options.postgres:
        parser.error("without a shared disk there is no shared SQLite: add --postgres")
    # Whoever started it in the background has had SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    console = Console()
    home = Path(tempfile.mkdtemp(prefix="wardround-chaos-"))
    console.print(f"files in {home}")
    with embedded_postgres() if options.postgres else nullcontext(None) as url:
        run = _blow(home, url, options, console)
    console.print_json(data=run)
    if options.record and run is not None:
        record(run)
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
