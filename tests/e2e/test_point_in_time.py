"""A base backup and the archived log of PostgreSQL, as docs/operations.md has them: back to the newest point, hospitals
go on; back to a moment in the middle of a study, they refuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.harness import tiny
from tests.harness.forked import ForkedProcesses
from wardround.demo.live import LiveCoordinator, LiveHospital, embedded_postgres, open_study, postgres_folder
from wardround.demo.processes import Process, Processes, until

# Many processes on few cores: generous, because a slow machine is no failure.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
SECONDS = 200.0
STUDY = "archived"


@dataclass
class Cluster:
    """PostgreSQL with its data in `data`, reached through a socket among them; `archive` holds its log."""

    data: Path
    archive: Path
    programs: Path
    user: int | None = field(init=False)

    def __post_init__(self) -> None:
        # The server does not run as root; its files are those of whom the package made for it.
        self.user = self.archive.parent.stat().st_uid if os.geteuid() == 0 else None

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@/postgres?host={self.data}"

    def ask(self, statement: str) -> object:
        with psycopg.connect(self.url.replace("+psycopg", "", 1), autocommit=True) as connection:
            found = connection.execute(statement)  # type: ignore[arg-type]
            return found.fetchone()[0] if found.description else None  # type: ignore[index]

    def run(self, program: str, *words: str | Path) -> None:
        command = [str(self.programs / program), *map(str, words)]
        # pg_ctl's child would keep a pipe open.
        log = self.archive.parent / "commands.log"
        with log.open("ab") as out:
            ran = subprocess.run(command, user=self.user, cwd="/", stdout=out, stderr=out, check=False)
        assert ran.returncode == 0, "".join(path.read_text() for path in self.archive.parent.glob("*.log"))

    def start(self) -> None:
        options = f"-k {self.data} -c listen_addresses="
        self.run("pg_ctl", "-w", "-D", self.data, "-l", self.archive.parent / "server.log", "-o", options, "start")

    def stop(self, mode: str) -> None:
        self.run("pg_ctl", "-w", "-D", self.data, "-m", mode, "stop")

    def own(self, folder: Path) -> None:
        """Whoever runs the server owns the folder."""
        if self.user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.user, -1)

    def restored(self, backup: Path, name: str, *settings: str, log: Path | None = None) -> Cluster:
        """Another one, from the base backup and the archive; `log`: the last files of a server that was lost."""
        other = Cluster(self.archive.parent / name, self.archive, self.programs)
        # The socket lies among the data here, and its lock was copied with them.
        shutil.copytree(backup, other.data, ignore=shutil.ignore_patterns(".s.PGSQL*"))
        if log is not None:
            shutil.copytree(log, other.data / "pg_wal", dirs_exist_ok=True)
        (other.data / "recovery.signal").touch()
        with (other.data / "postgresql.auto.conf").open("a") as configuration:
            configuration.write(
                "".join(f"{line}\n" for line in (f"restore_command = 'cp {self.archive}/%f %p'", *settings))
            )
        self.own(other.data)
        other.start()
        return other


@contextmanager
def archiving() -> Iterator[tuple[Cluster, Path]]:
    """A server that archives its log, and its base backup."""
    with embedded_postgres() as url:
        first = postgres_folder(url)
        folder = first.parent / "kept"
        (folder / "log").mkdir(parents=True)
        owner = first.stat().st_uid
        for made in (folder, folder / "log"):
            os.chown(made, owner, -1)
        # Of the very server that runs: the wheel holds more than one version.
        programs = Path((first / "postmaster.opts").read_text().split()[0]).parent
        cluster = Cluster(first, folder / "log", programs)
        for setting in (
            "archive_mode = on",
            f"archive_command = 'test ! -f {cluster.archive}/%f && cp %p {cluster.archive}/%f'",
        ):
            cluster.ask(f"ALTER SYSTEM SET {setting}")
        cluster.stop("fast")
        cluster.start()
        backup = folder / "base"
        cluster.run("pg_basebackup", "-h", first, "-U", "postgres", "-D", backup, "--checkpoint=fast")
        yield cluster, backup


@pytest.mark.slow
def test_the_newest_point_goes_on_and_an_older_one_is_refused(tmp_path: Path) -> None:
    with archiving() as (cluster, backup), ForkedProcesses() as processes:
        coordinator = LiveCoordinator(tmp_path / "coordinator", processes, database_url=cluster.url)
        coordinator.prepare()
        coordinator.serve()
        hospitals = tiny.hospitals(tmp_path / "hospitals", {"alpha": 12, "beta": 12}, processes)
        with coordinator.operator() as operator:
            chosen = tiny.settings("parallel", clients=2, rounds=1000)
            open_study(operator, STUDY, "archived", chosen, hospitals, coordinator.origin)
        joined = {name: hospital.join(STUDY, coordinator.origin) for name, hospital in hospitals.items()}
        _play(coordinator, processes, 3)
        _stop(coordinator)
        middle = cluster.ask("SELECT now()::text")
        coordinator.serve()
        seen = _play(coordinator, processes, 3)
        _stop(coordinator)

        # The machine is lost, but not its newest log, part of which was not archived yet.
        cluster.stop("immediate")
        newest = cluster.restored(backup, "newest", log=cluster.data / "pg_wal")
        coordinator.database_url = newest.url
        coordinator.serve()
        assert _round(coordinator) >= seen, "what hospitals have seen is there"
        _play(coordinator, processes, 2)
        # Raises when one has ended: they go on as if nothing had been.
        processes.check()
        _stop(coordinator)
        newest.stop("fast")

        target = (f"recovery_target_time = '{middle}'", "recovery_target_action = 'promote'")
        # The timeline of the server that was lost, not the one that the newest point began.
        one = "recovery_target_timeline = 'current'"
        older = cluster.restored(backup, "older", *target, one, log=cluster.data / "pg_wal")
        coordinator.database_url = older.url
        coordinator.serve()
        _all_refuse(hospitals, joined, coordinator)
        _stop(coordinator)
        older.stop("fast")


def _all_refuse(hospitals: dict[str, LiveHospital], joined: dict[str, Process], coordinator: LiveCoordinator) -> None:
    for name, process in joined.items():
        # One that was just sending is told first that there is no such round; it stops as well.
        assert process.wait(SECONDS) != 0
        again = hospitals[name].join(STUDY, coordinator.origin)
        assert again.wait(SECONDS) != 0
        said = " ".join(again.log.read_text().split())
        # Rounds that nobody takes part in may have made the ledger longer than the one it saw, but another one.
        assert "restored from an older copy" in said or "the coordinator's ledger was rewritten" in said, said


def _round(coordinator: LiveCoordinator) -> int:
    with coordinator.operator() as operator:
        return operator.budget(STUDY).round


def _play(coordinator: LiveCoordinator, processes: Processes, more: int) -> int:
    """So many rounds more."""
    wanted = _round(coordinator) + more
    with coordinator.operator() as operator:
        reached = until(
            lambda: operator.budget(STUDY).round >= wanted, seconds=SECONDS, check=processes.check, every=0.1
        )
    assert reached, f"round {wanted} does not come"
    return wanted


def _stop(coordinator: LiveCoordinator) -> None:
    assert coordinator.process is not None
    coordinator.process.stop()


@pytest.mark.parametrize(
    "setting", ["archive_mode", "archive_command", "restore_command", "recovery_target_time", "recovery_target_action"]
)
def test_the_page_for_operators_names_what_was_tried(setting: str) -> None:
    assert re.search(rf"\b{setting}\b", OPERATIONS)
