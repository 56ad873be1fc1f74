"""Two API processes on one database, each with what it has seen itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import delete, update

from server.db.session_states import States
from server.db.tables import SessionMessageRow, SessionRow
from server.services.coordinator import Coordinator
from server.services.secure_sum import lists
from study_protocol.secure_sum.messages import KeyList
from tests.factories.masked_rounds import begin, round_of
from tests.factories.masked_studies import STEPS, Turn, said
from tests.factories.settings import settings
from tests.factories.studies import work


@pytest.fixture
def other(coordinator: Coordinator) -> Coordinator:
    return replace(coordinator, sessions=States(), assignments={}, statements={})


def alternating(turns: list[Turn], one: Coordinator, two: Coordinator, step: str, first: int = 0) -> None:
    """Each hospital's message at one process, and what it is shown before at the other."""
    for place, turn in enumerate(turns):
        turn.coordinator = (one, two)[(place + first) % 2]
        turn.take(step)


@pytest.mark.quick("sqlite")
def test_a_session_goes_from_process_to_process(coordinator: Coordinator, other: Coordinator) -> None:
    turns = begin(coordinator, settings(masked=True))
    for number, step in enumerate(STEPS):
        alternating(turns, coordinator, other, step, number)
        work((coordinator, other)[number % 2])
    assert round_of(coordinator).state == "released"


def test_a_message_that_the_database_has_lost_is_recorded_again(coordinator: Coordinator, other: Coordinator) -> None:
    """A standby that took over may lack the last commits; what a process remembers of them acknowledges nothing."""
    turns = begin(coordinator, settings(masked=True))
    turns[0].keys()
    version = coordinator.database.read("version", lambda tx: tx.session.query(SessionRow.version).scalar())
    messages = [turn.keys_message() for turn in turns]
    said(coordinator, 1, messages[1])

    def lose(tx: object) -> None:
        tx.session.execute(delete(SessionMessageRow).where(SessionMessageRow.client == messages[1].client))  # type: ignore[attr-defined]
        tx.session.execute(update(SessionRow).values(version=version))  # type: ignore[attr-defined]

    coordinator.database.write("lose", lose)
    assert said(coordinator, 1, messages[2]).created
    assert said(coordinator, 1, messages[1]).created
    for message in messages[3:]:
        said(other, 1, message)
    found = lists.read_list(coordinator, "sepsis", 1, "keys", "")[1]
    assert found is not None
    assert len(KeyList.model_validate_json(found).entries) == len(turns)


@pytest.mark.slow
def test_a_process_keeps_nothing_sealed_of_a_round_before(coordinator: Coordinator, other: Coordinator) -> None:
    turns = begin(coordinator, settings(masked=True))
    for number, step in enumerate(STEPS):
        alternating(turns, coordinator, other, step, number)
    kept = other.sessions.cached("sepsis", 1)
    assert kept is not None
    assert kept.session.unmasks
    work(coordinator)
    assert round_of(coordinator).scrubbed_at is not None
    lists.follow(other, "sepsis", 1 << 30)
    kept = other.sessions.cached("sepsis", 1)
    assert kept is None or not (kept.session.shares or kept.session.unmasks)
