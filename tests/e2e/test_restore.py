"""A coordinator restored from an older copy of its database is refused by its hospitals: ε cannot be un-spent."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
import pytest

from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from tests.harness import laws, tiny
from tests.harness.forked import ForkedProcesses
from wardround.demo.live import LiveCoordinator, embedded_postgres, open_study
from wardround.demo.processes import Processes, until

# Many processes on few cores: generous, because a slow machine is no failure.
pytestmark = pytest.mark.timeout(900)

SECONDS = 200.0
STUDY = "restored"


class Database(Protocol):
    url: str | None

    def save(self, home: Path) -> None: ...

    def restore(self, home: Path) -> None: ...


@dataclass
class Files:
    """SQLite: the whole home folder, blobs and all."""

    copy: Path
    url: str | None = None

    def save(self, home: Path) -> None:
        shutil.copytree(home, self.copy)

    def restore(self, home: Path) -> None:
        shutil.rmtree(home)
        shutil.copytree(self.copy, home)


@dataclass
class Server:
    """PostgreSQL: a copy of the database; the blobs stay, as they do when only the database is restored."""

    maintenance: str
    url: str | None

    def save(self, home: Path) -> None:
        self._execute("CREATE DATABASE saved TEMPLATE live")

    def restore(self, home: Path) -> None:
        self._execute("DROP DATABASE live", "CREATE DATABASE live TEMPLATE saved")

    def _execute(self, *statements: str) -> None:
        with psycopg.connect(self.maintenance, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[arg-type]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield Files(tmp_path / "copy")
        return
    with embedded_postgres() as url:
        maintenance = url.replace("postgresql+psycopg://", "postgresql://", 1)
        server = Server(maintenance, url.replace("/postgres?", "/live?", 1))
        assert server.url != url
        server._execute("CREATE DATABASE live")
        yield server


def test_hospitals_refuse_a_coordinator_that_forgot_rounds(database: Database, tmp_path: Path):
    with ForkedProcesses() as processes:
        coordinator = LiveCoordinator(tmp_path / "coordinator", processes, database_url=database.url)
        coordinator.prepare()
        coordinator.serve()
        hospitals = tiny.hospitals(tmp_path / "hospitals", {"alpha": 12, "beta": 12}, processes)
        settings = tiny.settings("parallel", clients=2, rounds=1000)
        with coordinator.operator() as operator:
            open_study(operator, STUDY, "restored", settings, hospitals, coordinator.origin)
        joined = {name: hospital.join(STUDY, coordinator.origin) for name, hospital in hospitals.items()}
        _until_round(coordinator, processes, 3)
        _stop(coordinator)
        database.save(coordinator.home)
        saved = {name: _charges(hospital.home) for name, hospital in hospitals.items()}
        coordinator.serve()
        _until_round(coordinator, processes, _rounds(coordinator) + 3)
        _stop(coordinator)
        charged = {name: _charges(hospital.home) for name, hospital in hospitals.items()}
        assert all(charged[name] > saved[name] for name in hospitals)

        database.restore(coordinator.home)
        coordinator.serve()
        for name, process in joined.items():
            # One that was just sending is told first that there is no such round; it stops as well.
            assert process.wait(SECONDS) != 0
            again = hospitals[name].join(STUDY, coordinator.origin)
            assert again.wait(SECONDS) != 0
            said = " ".join(again.log.read_text().split())
            # Rounds that nobody takes part in may have made the ledger longer than the one it saw, but another one.
            assert "restored from an older copy" in said or "the coordinator's ledger was rewritten" in said, said
            assert _charges(hospitals[name].home) == charged[name]
        with coordinator.operator() as operator:
            views = laws.whole_history(operator, STUDY)
            sent = {name: _sent(hospital.home) for name, hospital in hospitals.items()}
        for client in views[-1].clients or []:
            assert client.state != "received" or client.sha256 in sent[client.client]


def _rounds(coordinator: LiveCoordinator) -> int:
    with coordinator.operator() as operator:
        return operator.budget(STUDY).round


def _until_round(coordinator: LiveCoordinator, processes: Processes, number: int) -> None:
    with coordinator.operator() as operator:
        reached = until(
            lambda: operator.budget(STUDY).round >= number, seconds=SECONDS, check=processes.check, every=0.1
        )
    assert reached, f"round {number} does not come"


def _stop(coordinator: LiveCoordinator) -> None:
    assert coordinator.process is not None
    # It closes everything and then lets the signal have its way.
    assert coordinator.process.stop() in (0, -signal.SIGTERM)


def _charges(home: Path) -> int:
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        return len(ledger.charges())


def _sent(home: Path) -> set[str]:
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        return {departure.sha256 for departure in ledger.departures(STUDY)}
