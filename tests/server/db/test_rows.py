"""Finding rows: what is there, what is said of what is not, and who waits for whom."""

from __future__ import annotations

import pytest

from server.db.rows import (
    append_event,
    attendance,
    clients,
    find_client,
    find_round,
    find_study,
    latest_model,
    lock_open_round,
    lock_participant,
    lock_study,
    open_round,
    participants,
    share_round,
)
from server.db.session import Transaction
from server.db.tables import EventRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from tests.factories.hospital_double import update
from tests.factories.studies import open_study, work


def test_what_is_not_there_is_said_by_a_stable_code(coordinator: Coordinator) -> None:
    open_study(coordinator)

    def look(tx: Transaction) -> list[str]:
        study = find_study(tx, "sepsis").id
        codes: list[str] = []
        for ask in (
            lambda: find_study(tx, "nowhere"),
            lambda: lock_study(tx, "nowhere"),
            lambda: find_round(tx, study, 1),
            lambda: share_round(tx, study, 1),
        ):
            with pytest.raises(Rejected) as refused:
                ask()
            codes.append(refused.value.code)
        assert find_client(tx, study, "nobody") is None
        assert open_round(tx, study) is None
        assert lock_open_round(tx, study) is None
        return codes

    found = coordinator.database.write("look", look)
    assert found == ["unknown-study", "unknown-study", "round-unknown", "round-unknown"]


@pytest.mark.quick("sqlite")
def test_a_round_is_open_until_it_ends(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, clients=2)
    work(coordinator)
    hospitals[0].send(1, update())
    hospitals[1].send(1, update())

    def look(tx: Transaction) -> list[int | None]:
        study = find_study(tx, "sepsis").id
        round, model = open_round(tx, study), latest_model(tx, study)
        return [None if round is None else round.number, None if model is None else model.version]

    assert coordinator.database.read("look", look) == [1, 0]
    work(coordinator)
    assert coordinator.database.read("look", look) == [2, 1]


@pytest.mark.quick("sqlite")
def test_everybody_sampled_stands_once_in_the_attendance(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, clients=3)
    work(coordinator)
    hospitals[2].send(1, update())
    hospitals[0].refuse(1)

    def look(tx: Transaction) -> None:
        study = find_study(tx, "sepsis").id
        assert [row.name for row in clients(tx, study)] == ["h0", "h1", "h2"]
        rows = participants(tx, find_round(tx, study, 1))
        assert [row.client for row in rows] == ["h0", "h1", "h2"]
        found = attendance(tx, rows, None)
        assert (found.received, found.waiting, found.missing) == ({"h2"}, {"h1"}, set())
        with pytest.raises(Rejected, match="not-sampled"):
            lock_participant(tx, find_round(tx, study, 1), "h9")

    coordinator.database.write("look", look)


def test_events_are_numbered_without_a_gap(coordinator: Coordinator) -> None:
    open_study(coordinator)

    def tell(tx: Transaction) -> list[int]:
        study = lock_study(tx, "sepsis")
        append_event(tx, study, "one")
        append_event(tx, study, "two", round_number=7)
        tx.session.flush()
        rows = tx.session.query(EventRow).filter_by(study_id=study.id).order_by(EventRow.number)
        return [row.number for row in rows]

    numbers = coordinator.database.write("tell", tell)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 2
