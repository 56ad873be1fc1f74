"""Workers as they run: in threads, several at once, with a database that goes away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from server.db.notifications import ChangeDetector
from server.db.session import Database
from server.db.tables import RoundRow
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.rounds import release
from server.services.studies import lifecycle
from server.worker import Worker, WorkItem
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.laws import RecordedNoise, check_ledger, check_models, check_receipts, check_rounds, facts
from tests.factories.studies import FakeClock, coordinator_on, open_study, work

PATIENCE_SECONDS = 60.0


@contextmanager
def running(*workers: Worker) -> Iterator[None]:
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def eventually(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def answer_everything(hospital: Hospital, sent: dict[tuple[int, str], bytes], until: threading.Event) -> None:
    while not until.is_set():
        try:
            given = hospital.assignment()
        except Rejected:
            return
        if given is None:
            time.sleep(0.03)
            continue
        key = (given.assignment.round, hospital.name)
        sent[key] = update(0.001 * key[0])
        hospital.send(key[0], sent[key])


@pytest.mark.quick("sqlite")
def test_two_workers_and_three_hospitals_at_once(database_url: str, tmp_path: Path) -> None:
    """Real threads, real time: the laws hold whoever gets there first."""
    noise, sent = RecordedNoise(), dict[tuple[int, str], bytes]()
    coordinators = [coordinator_on(Database(database_url), tmp_path) for _ in range(2)]
    first, second = (Coordinator(**{**vars(each), "noise": noise}) for each in coordinators)
    hospitals = open_study(first, scheme="client", max_steps=3, training={"algorithm": "fedavg"})
    done = threading.Event()
    senders = [threading.Thread(target=answer_everything, args=(h, sent, done), daemon=True) for h in hospitals]
    with running(*(Worker(each, poll_seconds=0.03, lease_seconds=0.5) for each in (first, second))):
        for sender in senders:
            sender.start()
        try:
            eventually(lambda: lifecycle.show(first, "sepsis").state == "finished")
            eventually(lambda: all(round.scrubbed_at is not None for round in facts(first).rounds))
        finally:
            done.set()
            for sender in senders:
                sender.join(PATIENCE_SECONDS)
    found = facts(first)
    check_ledger(found)
    check_rounds(found)
    check_receipts(found, sent)
    check_models(first, found, sent, noise)
    assert [round.state for round in found.rounds] == ["released"] * 3
    for each in (first, second):
        each.database.dispose()


@pytest.mark.quick("sqlite")
def test_a_woken_worker_does_not_wait_for_its_poll(coordinator: Coordinator) -> None:
    open_study(coordinator)
    worker = Worker(coordinator, poll_seconds=1000.0)
    with running(worker):
        eventually(lambda: len(facts(coordinator).rounds) == 1)
        for number in range(3):
            Hospital(UseCases(coordinator), "sepsis", f"h{number}").send(1, update())
        worker.wake()
        eventually(lambda: len(facts(coordinator).rounds) == 2)


@pytest.mark.slow
def test_a_deadline_that_a_clock_jumps_over_is_noticed(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)

    def state() -> str:
        found = coordinator.database.read("look", lambda tx: tx.session.query(RoundRow).first())
        return "" if found is None else found.state

    with running(Worker(coordinator, poll_seconds=0.02)):
        eventually(lambda: state() == "collecting")
        # It has looked how long there is to wait.
        time.sleep(0.3)
        clock.seconds += 100_000.0
        eventually(lambda: state() not in ("", "collecting"))


@pytest.mark.quick("sqlite")
def test_a_stopped_worker_gives_its_leases_back(coordinator: Coordinator) -> None:
    open_study(coordinator)
    with running(Worker(coordinator, poll_seconds=0.01)):
        eventually(lambda: len(facts(coordinator).rounds) == 1)
    lifecycle.act(coordinator, "sepsis", "stop")
    # On a clock that stands still only a lease that was given back can be taken.
    assert Worker(coordinator).step()


@pytest.mark.quick("sqlite")
def test_one_broken_study_does_not_keep_the_others_waiting(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals = [*open_study(coordinator, "a-broken"), *open_study(coordinator, "sound")]
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    load = release._inputs

    def broken(opened: Coordinator, tx: Any, study: str, number: int) -> Any:
        if study == "a-broken":
            raise OSError("this study's files cannot be read")
        return load(opened, tx, study, number)

    monkeypatch.setattr(release, "_inputs", broken)
    with running(Worker(coordinator, poll_seconds=0.01)):
        eventually(lambda: views.show_round(coordinator, "sound", 1, with_clients=False).state == "released")
    assert views.show_round(coordinator, "a-broken", 1, with_clients=False).state == "settled"


@pytest.mark.quick("sqlite-find-next")
@pytest.mark.parametrize("question", ["find-due", "find-next"])
def test_a_worker_outlives_a_database_that_is_away(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """At every question of a look, also of one that found nothing to do."""
    read, away = Database.read, [3]

    def unreliable(database: Database, name: str, work: Any) -> Any:
        if name == question and away[0] > 0:
            away[0] -= 1
            raise OperationalError("", {}, Exception("the connection was refused"))
        return read(database, name, work)

    monkeypatch.setattr(Database, "read", unreliable)
    with running(Worker(coordinator, poll_seconds=0.01)):
        eventually(lambda: away == [0])
        open_study(coordinator)
        eventually(lambda: len(facts(coordinator).rounds) == 1)


@pytest.mark.quick("sqlite")
def test_a_worker_outlives_a_pool_without_a_free_connection(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [3]

    def since_last(changes: ChangeDetector) -> bool:
        if full[0] > 0:
            full[0] -= 1
            raise PoolTimeout("no connection is free")
        return True

    monkeypatch.setattr(ChangeDetector, "since_last", since_last)
    with running(Worker(coordinator, poll_seconds=0.01)):
        eventually(lambda: full == [0])
        open_study(coordinator)
        eventually(lambda: len(facts(coordinator).rounds) == 1)


@pytest.mark.quick("sqlite")
def test_a_worker_without_the_lease_leaves_the_study_alone(coordinator: Coordinator, clock: FakeClock) -> None:
    open_study(coordinator)
    holder, other = Worker(coordinator), Worker(coordinator)
    holder.perform(holder._tasks()[0])
    for number in range(3):
        Hospital(UseCases(coordinator), "sepsis", f"h{number}").send(1, update())
    assert not other.step()
    clock.sleep(5.0)
    assert other.step()
    assert not holder.step()


@pytest.mark.slow
@pytest.mark.parametrize("why", ["a lease that ran out", "a step that failed"])
def test_a_worker_that_can_do_nothing_pauses_between_its_looks(
    coordinator: Coordinator, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    open_study(coordinator)
    if why == "a step that failed":

        def fails(*_: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(Worker, "_move", fails)
    else:
        dead = Worker(coordinator)
        dead.perform(dead._tasks()[0])
        clock.sleep(100.0)
    read, looks = Database.read, [0]

    def counted(database: Database, name: str, work: Any) -> Any:
        looks[0] += name == "find-due"
        return read(database, name, work)

    monkeypatch.setattr(Database, "read", counted)
    with running(Worker(coordinator, poll_seconds=0.1)):
        eventually(lambda: looks[0] > 0)
        time.sleep(1.0)
    # Ten pauses fit into a second; without them it looked hundreds of times.
    assert looks[0] < 30


def _overtaken(coordinator: Coordinator, clock: FakeClock) -> tuple[Worker, WorkItem]:
    """A worker that has found a step of a study whose lease it held, and another one that was quicker."""
    hospitals = open_study(coordinator)
    holder, other = Worker(coordinator, lease_seconds=0.3), Worker(coordinator)
    holder.perform(holder._tasks()[0])
    for hospital in hospitals:
        hospital.send(1, update())
    # It waited for hospitals for longer than the lease.
    clock.sleep(5.0)
    (found,) = holder._tasks()
    # Both were woken by the same news; this one has the lease, and has committed nothing yet.
    assert other._hold(found)
    return holder, found


def test_an_ordinary_take_over_is_no_warning(
    coordinator: Coordinator, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    holder, found = _overtaken(coordinator, clock)
    with caplog.at_level("INFO", "wardround.worker"):
        assert not holder.perform(found)
    (record,) = [one for one in caplog.records if one.name == "wardround.worker"]
    assert (record.levelname, record.getMessage()) == ("INFO", "another worker has taken over")


@pytest.mark.quick("sqlite")
def test_work_that_another_worker_repeats_is_a_warning(
    coordinator: Coordinator, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    holder, found = _overtaken(coordinator, clock)
    move = Worker._move

    def slow(worker: Worker, task: WorkItem, lease: Any) -> None:
        time.sleep(0.15)
        move(worker, task, lease)

    monkeypatch.setattr(Worker, "_move", slow)
    with caplog.at_level("INFO", "wardround.worker"):
        assert not holder.perform(found)
    (record,) = [one for one in caplog.records if one.name == "wardround.worker"]
    assert record.levelname == "WARNING"
    assert "done again" in record.getMessage()
    assert record.__dict__["milliseconds"] >= 150
