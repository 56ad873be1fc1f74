"""Kill coordinator and hospitals at random moments, start them again, and check the laws of every study.

    python -m experiments.chaos --minutes 10 --seed 1 [--rounds 25] [--postgres]

Every second study, on average, is masked. The kills are SIGKILL. What is killed, and when, follows the seed; what it
meets there does not. A broken law ends the run with an error and leaves every file where it is.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from accounting.plan.schemes import SchemeName
from client_sdk.api.client import Client
from client_sdk.errors import WardroundError
from experiments import laws, tiny
from experiments.live import LiveCoordinator, LiveHospital, embedded_postgres, open_study
from experiments.processes import Process, Processes, ProcessFailed

LEASE_SECONDS = "0.5"
# All hospitals of a masked study are needed: whoever was killed comes back long before.
STEP_SECONDS = 120.0
PLAIN = {"alpha": 12, "beta": 9}
MASKED = {"alpha": 12, "beta": 9, "gamma": 11, "delta": 10}
END_SECONDS = 300.0
KILLED = -9


class Storm:
    """One coordinator and the hospitals of one study at a time, under fire."""

    def __init__(self, home: Path, database_url: str | None, processes: Processes, seed: int) -> None:
        self.home, self.processes = home, processes
        self.random = random.Random(seed)
        self.coordinator = LiveCoordinator(home / "coordinator", processes, database_url=database_url)
        self.killed: Counter[str] = Counter()
        self.start_seconds = 0.0

    def begin(self) -> None:
        self.coordinator.prepare()
        self._serve()

    def study(self, number: int, rounds: int) -> int:
        """One study of so many rounds from start to end; returns those that were charged.

        Raises:
            LawBroken, LedgerError, ProcessFailed.
        """
        name = f"storm-{number}"
        scheme: SchemeName = self.random.choice(("parallel", "client"))
        masked = self.random.random() < 0.5
        hospitals = tiny.hospitals(self.home / name, MASKED if masked else PLAIN, self.processes)
        with self.coordinator.operator(patience_seconds=END_SECONDS) as operator:
            step = STEP_SECONDS if masked else None
            settings = tiny.settings(scheme, clients=len(hospitals), rounds=rounds, step_seconds=step)
            open_study(operator, name, "storm", settings, hospitals, self.coordinator.origin)
            joined = {key: self._join(name, hospital) for key, hospital in hospitals.items()}
            self._fire(operator, name, hospitals, joined)
            for process in joined.values():
                if process.wait(END_SECONDS) != 0:
                    process.check()
            homes = {key: hospital.home for key, hospital in hospitals.items()}
            return laws.check(operator, name, homes).charged_rounds

    def _fire(
        self, operator: Client, study: str, hospitals: dict[str, LiveHospital], joined: dict[str, Process]
    ) -> None:
        rounds, moved = 0, time.monotonic()
        while not self._finished(operator, study):
            # Long enough, on average, for some rounds between two kills, however slow the machine.
            time.sleep(self.random.uniform(0.0, 3 * self.start_seconds))
            target = self.random.choice(("coordinator", "coordinator", *hospitals))
            if target == "coordinator":
                self._kill(target, self.coordinator.process)
                time.sleep(self.random.uniform(0.0, 1.0))
                self._serve()
            elif joined[target].ended() is None:
                self._kill(target, joined[target])
                joined[target] = self._join(study, hospitals[target])
            self._check(joined)
            reached = operator.budget(study).round
            if reached > rounds:
                rounds, moved = reached, time.monotonic()
            if time.monotonic() > moved + END_SECONDS:
                raise ProcessFailed(f"{study} stands still; the coordinator", None, self.coordinator.log)

    def _finished(self, operator: Client, study: str) -> bool:
        try:
            return operator.study(study).state == "finished"
        except WardroundError:
            return False

    def _serve(self) -> None:
        begun = time.monotonic()
        self.coordinator.serve(lease_seconds=LEASE_SECONDS)
        self.start_seconds = time.monotonic() - begun

    def _join(self, study: str, hospital: LiveHospital) -> Process:
        return hospital.join(study, self.coordinator.origin)

    def _kill(self, name: str, process: Process | None) -> None:
        if process is not None and process.ended() is None:
            process.kill()
            self.killed[name] += 1

    def _check(self, joined: dict[str, Process]) -> None:
        for process in joined.values():
            if process.ended() not in (None, 0, KILLED):
                process.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=25, help="of each study")
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    console = Console()
    home = Path(tempfile.mkdtemp(prefix="wardround-chaos-"))
    console.print(f"files in {home}")
    end = time.monotonic() + 60 * options.minutes
    with embedded_postgres() if options.postgres else nullcontext(None) as url, Processes() as processes:
        storm = Storm(home, url, processes, options.seed)
        storm.begin()
        number = 0
        while number == 0 or time.monotonic() < end:
            number += 1
            rounds = storm.study(number, options.rounds)
            console.print(f"study {number}: every law holds after {rounds} rounds; killed so far: {dict(storm.killed)}")
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
