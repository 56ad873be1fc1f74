"""The coordinator dies at every failpoint, is started again, and the study ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

import server.worker  # noqa: F401 - its failpoints are listed below
from server.db.session import Database
from server.services.coordinator import Coordinator
from server.worker import Worker
from study_protocol.wire import failpoints
from tests.factories.dying import Killed, dying_at
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.laws import RecordedNoise, check_ledger, check_models, check_receipts, check_rounds, facts
from tests.factories.ledgers import kinds_in
from tests.factories.studies import FakeClock, coordinator_on, open_study, put_model
from tests.harness.dying_processes import MASKED

LEASE_SECONDS = 5.0
ONLY_WHEN_ABANDONED = {"worker.before-abandon", "worker.after-abandon"}
# Of queries, which tests/e2e/test_queries_killed.py asks.
ONLY_WHEN_ASKED = {"worker.before-answer", "worker.after-answer"}
WHILE_OPENING = {"api.before-model-file", "api.after-model-file", "api.after-model-commit"}
PASSED = sorted(
    {*failpoints.names("worker."), *failpoints.names("api.")}
    - ONLY_WHEN_ABANDONED
    - ONLY_WHEN_ASKED
    - WHILE_OPENING
    - MASKED
)


class Place:
    """One coordinator that can be killed and started again, and what its clients remember."""

    def __init__(self, url: str, home: Path, clock: FakeClock) -> None:
        self.url, self.home, self.clock = url, home, clock
        self.noise = RecordedNoise()
        self.sent: dict[tuple[int, str], bytes] = {}
        self.receipts: dict[tuple[int, str], bytes] = {}
        self.start()

    def start(self) -> None:
        coordinator = coordinator_on(Database(self.url, clock=self.clock), self.home)
        self.coordinator = Coordinator(**{**vars(coordinator), "noise": self.noise})
        self.worker = Worker(self.coordinator, lease_seconds=LEASE_SECONDS)

    def restart(self) -> None:
        self.coordinator.database.dispose()
        # Nobody gave the dead worker's lease back.
        self.clock.sleep(LEASE_SECONDS)
        self.start()

    def send(self, name: str) -> None:
        """What a hospital does: the same round gets the same bytes, however often it is sent."""
        hospital = Hospital(UseCases(self.coordinator), "sepsis", name)
        for round, sender in [key for key in self.sent if key not in self.receipts]:
            if sender == name:
                self._deliver(hospital, round)
        given = None if self.finished else hospital.assignment()
        if given is not None:
            self.sent[given.assignment.round, name] = update(0.01 * len(self.sent))
            self._deliver(hospital, given.assignment.round)

    def _deliver(self, hospital: Hospital, round: int) -> None:
        hospital.send(round, self.sent[round, hospital.name])
        self.receipts[round, hospital.name] = self.sent[round, hospital.name]

    def advance(self) -> None:
        self.worker.step()
        for name in ("h0", "h1", "h2"):
            self.send(name)

    @property
    def finished(self) -> bool:
        return facts(self.coordinator).study.state == "finished"

    def check(self) -> None:
        found = facts(self.coordinator)
        check_ledger(found)
        check_rounds(found)
        check_receipts(found, self.receipts)
        check_models(self.coordinator, found, self.sent, self.noise)


def work_with(worker: Worker) -> None:
    while worker.step():
        pass


@pytest.fixture
def place(database_url: str, tmp_path: Path) -> Place:
    return Place(database_url, tmp_path, FakeClock())


# In round 1, and where the server's own state decides also in round 2.
ROUND_TWO = [(f"worker.{side}-{point}", 2) for side in ("before", "after") for point in ("settle", "noise", "release")]
DEATHS = [
    pytest.param(
        database, name, nth, marks=pytest.mark.slow if database == "postgresql" and (name, nth) not in ROUND_TWO else ()
    )
    for database in ("sqlite", "postgresql")
    for name, nth in (*((name, 1) for name in PASSED), *ROUND_TWO)
]


@pytest.mark.quick("sqlite-worker.after-release-1")
@pytest.mark.parametrize(("database_url", "name", "nth"), DEATHS, indirect=["database_url"])
def test_death_at_a_failpoint(place: Place, name: str, nth: int) -> None:
    open_study(place.coordinator, scheme="client", max_steps=2, training={"algorithm": "fedavg"})
    with dying_at(name, nth) as death:
        for _ in range(40):
            try:
                place.advance()
            except Killed:
                place.restart()
            if place.finished:
                break
        # The round after the last is scrubbed, too.
        work_with(place.worker)
        assert death.hit
    place.check()
    found = facts(place.coordinator)
    assert found.study.stop_reason == "max-steps-reached"
    assert [round.state for round in found.rounds] == ["released", "released"]
    assert place.receipts == place.sent
    assert len(place.sent) == 6
    assert place.coordinator.blobs.folders("rounds/sepsis") == []
    place.coordinator.database.dispose()


@pytest.mark.quick("sqlite-worker.before-abandon")
@pytest.mark.parametrize("name", sorted(ONLY_WHEN_ABANDONED))
def test_death_while_a_settled_round_is_abandoned(place: Place, name: str) -> None:
    hospitals = open_study(
        place.coordinator, max_steps=1, training={"algorithm": "fedavg", "optimiser": {"learning_rate": 1e39}}
    )
    place.worker.step()
    for hospital in hospitals:
        hospital.send(1, update(1.0))
    with dying_at(name) as death:
        with pytest.raises(Killed):
            work_with(place.worker)
        place.restart()
        work_with(place.worker)
    assert death.hit
    found = facts(place.coordinator)
    check_ledger(found)
    check_rounds(found)
    assert [round.reason for round in found.rounds] == ["not-finite"]
    assert kinds_in(found.entries)[:3] == ["opened", "reserved", "settled"]
    place.coordinator.database.dispose()


@pytest.mark.quick("sqlite-api.after-model-commit", "sqlite-api.after-model-file", "sqlite-api.before-model-file")
@pytest.mark.parametrize("name", sorted(WHILE_OPENING))
def test_death_while_the_initial_model_is_stored(place: Place, name: str) -> None:
    with dying_at(name) as death:
        with pytest.raises(Killed):
            open_study(place.coordinator)
        place.restart()
        put_model(place.coordinator, "sepsis")
    assert death.hit
    assert facts(place.coordinator).study.state == "enrolling"
    place.coordinator.database.dispose()
