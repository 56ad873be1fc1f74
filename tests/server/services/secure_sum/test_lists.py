"""What a masked round reads and when it is looked at: work that must not grow with the number of clients."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from server.db.tables import SessionMessageRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.secure_sum import lists
from server.worker import find_due
from study_protocol.secure_sum.messages import Inbox
from tests.factories.hospital_double import MODEL
from tests.factories.masked_rounds import round_of
from tests.factories.masked_studies import STEPS, MaskedHospital, Turn, said
from tests.factories.settings import settings
from tests.factories.studies import open_study, work

CLIENTS = 6  # t = 4


def turns_of(coordinator: Coordinator) -> list[Turn]:
    chosen = settings(masked=True)
    hospitals = open_study(coordinator, clients=CLIENTS, settings=chosen)
    work(coordinator)
    return [MaskedHospital(hospital, dict(MODEL)).session(coordinator, chosen, 1) for hospital in hospitals]


def until(coordinator: Coordinator, turns: list[Turn], step: str) -> None:
    for earlier in STEPS[: STEPS.index(step)]:
        for turn in turns:
            turn.take(earlier)
        work(coordinator)


def due(coordinator: Coordinator) -> list[str]:
    return [task.kind for task in coordinator.database.read("look", lambda tx: find_due(tx, "somebody"))]


@pytest.mark.quick("sqlite")
def test_the_worker_tries_to_sum_once_t_have_replied_and_not_before(coordinator: Coordinator) -> None:
    turns = turns_of(coordinator)
    until(coordinator, turns, "unmask")
    for turn in turns[:3]:
        turn.unmask()
        assert due(coordinator) == []
    turns[3].unmask()
    assert due(coordinator) == ["sum"]
    work(coordinator)
    assert lists.read_session(coordinator, "sepsis", 1)[1].phase == "summed"


@pytest.mark.quick("sqlite-shares")
@pytest.mark.parametrize("step", ["shares", "unmask"])
def test_what_others_said_is_not_read_to_take_a_clients_message(coordinator: Coordinator, step: str) -> None:
    turns = turns_of(coordinator)
    until(coordinator, turns, step)
    turns[0].take(step)

    said = update(SessionMessageRow).where(SessionMessageRow.step == step).values(body="unreadable")
    coordinator.database.write("spoil", lambda tx: tx.session.execute(said))
    turns[1].take(step)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["shares", "unmask"])
def test_a_message_that_comes_again_after_its_round_was_erased_is_a_repetition(
    coordinator: Coordinator, step: str
) -> None:
    turns = turns_of(coordinator)
    until(coordinator, turns, step)
    late = getattr(turns[0], f"{step}_message")()
    assert said(coordinator, 1, late).created
    for turn in turns[1:]:
        turn.take(step)
    work(coordinator)
    for following in STEPS[STEPS.index(step) + 1 :]:
        for turn in turns:
            turn.take(following)
        work(coordinator)
    assert round_of(coordinator).scrubbed_at is not None
    assert not said(coordinator, 1, late).created


@pytest.mark.slow
def test_shares_that_are_asked_for_after_their_round_was_erased_are_gone(coordinator: Coordinator) -> None:
    turns = turns_of(coordinator)
    for step in STEPS:
        for turn in turns:
            turn.take(step)
        work(coordinator)
    with pytest.raises(Rejected) as gone:
        turns[0].shown("inbox", Inbox)
    assert gone.value.code == "round-closed"
