from __future__ import annotations

import threading

import pytest

from server.db.leases import Lease, LeaseLost, acquire, release
from server.db.session import Transaction
from server.db.tables import EventRow, StudyRow
from server.services.coordinator import Coordinator
from tests.factories.studies import FakeClock, open_study


@pytest.fixture
def opened(coordinator: Coordinator) -> Coordinator:
    open_study(coordinator)
    return coordinator


def take(coordinator: Coordinator, owner: str) -> Lease | None:
    return coordinator.database.write("acquire-lease", lambda tx: acquire(tx, 1, owner, 5.0))


def test_one_worker_at_a_time(opened: Coordinator, clock: FakeClock) -> None:
    first = take(opened, "a")
    assert first is not None
    assert take(opened, "b") is None
    clock.sleep(4.9)
    assert take(opened, "b") is None
    clock.sleep(0.2)
    second = take(opened, "b")
    assert second is not None
    assert second.fence == first.fence + 1


def test_a_commit_renews_the_lease(opened: Coordinator, clock: FakeClock) -> None:
    first = take(opened, "a")
    assert first is not None
    clock.sleep(4)
    opened.database.write("work", first.check)
    clock.sleep(4)
    assert take(opened, "b") is None


def test_whoever_was_overtaken_commits_nothing(opened: Coordinator, clock: FakeClock) -> None:
    first = take(opened, "a")
    clock.sleep(6)
    assert take(opened, "b") is not None
    assert first is not None

    def late(tx: Transaction) -> None:
        tx.session.query(StudyRow).one().title = "too late"
        first.check(tx)

    with pytest.raises(LeaseLost):
        opened.database.write("late", late)
    assert opened.database.read("title", lambda tx: tx.session.query(StudyRow).one().title) == ""


def test_one_owner_may_come_back_but_its_old_lease_is_void(opened: Coordinator) -> None:
    first, again = take(opened, "a"), take(opened, "a")
    assert first is not None
    assert again is not None
    with pytest.raises(LeaseLost):
        opened.database.write("late", first.check)
    opened.database.write("now", again.check)


def test_a_released_lease_is_free_at_once(opened: Coordinator) -> None:
    first = take(opened, "a")
    assert first is not None
    opened.database.write("release-lease", lambda tx: release(tx, first))
    assert take(opened, "b") is not None
    # A second release, of a lease that is another's now, takes nothing away.
    opened.database.write("release-lease", lambda tx: release(tx, first))
    assert take(opened, "c") is None


def test_many_contenders_one_winner(opened: Coordinator) -> None:
    won: list[Lease] = []

    def contend(owner: str) -> None:
        lease = take(opened, owner)
        if lease is not None:
            won.append(lease)

    threads = [threading.Thread(target=contend, args=(f"w{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert opened.database.read("events", lambda tx: tx.session.query(EventRow).count()) > 0
