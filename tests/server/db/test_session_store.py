"""A session of the secure sum as rows and as the value that decides; sealed messages are read by whom they concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from server.db.rows import find_session, find_study
from server.db.session import Transaction
from server.db.session_store import (
    continue_session,
    forget_shares,
    is_awaited,
    load_session,
    masks_updates,
    members_at_opening,
    octets_of,
    record_message,
)
from server.db.tables import SessionRow
from server.services.coordinator import Coordinator
from tests.factories.hospital_double import MODEL
from tests.factories.masked_studies import STEPS, MaskedHospital, Turn
from tests.factories.settings import settings
from tests.factories.studies import open_study, work

T = TypeVar("T")
NAMES = ["h0", "h1", "h2", "h3", "h4"]


def until(coordinator: Coordinator, step: str) -> list[Turn]:
    """A session in which everybody has taken every step before `step`."""
    chosen = settings(masked=True)
    hospitals = open_study(coordinator, clients=5, settings=chosen)
    work(coordinator)
    turns = [MaskedHospital(hospital, dict(MODEL)).session(coordinator, chosen, 1) for hospital in hospitals]
    for earlier in STEPS[: STEPS.index(step)]:
        for turn in turns:
            turn.take(earlier)
        work(coordinator)
    return turns


def inside(coordinator: Coordinator, look: Callable[[Transaction, SessionRow], T]) -> T:
    def work_on(tx: Transaction) -> T:
        row = find_session(tx, find_study(tx, "sepsis").id, 1)
        assert row is not None
        return look(tx, row)

    return coordinator.database.write("look", work_on)


def test_a_study_without_masks_has_no_session(coordinator: Coordinator) -> None:
    open_study(coordinator)
    work(coordinator)

    def look(tx: Transaction) -> None:
        study = find_study(tx, "sepsis").id
        assert find_session(tx, study, 1) is None
        assert not is_awaited(tx, study, 1, "h0")
        assert members_at_opening(find_session(tx, study, 1)) is None

    coordinator.database.read("look", look)


def test_the_value_has_what_the_rows_say(coordinator: Coordinator) -> None:
    until(coordinator, "masked")

    def look(tx: Transaction, row: SessionRow) -> None:
        session = load_session(tx, row)
        assert (session.phase, session.failure, session.departed) == ("masked", None, frozenset())
        assert [message.client for message in session.cohort] == NAMES
        assert (session.sharers, list(session.shares)) == (tuple(NAMES), NAMES)
        assert masks_updates(row)
        members = members_at_opening(row)
        assert members is not None
        assert (members[0], sorted(members[1])) == (session.parameters.roster, NAMES)
        assert is_awaited(tx, row.study_id, row.round, "h0")
        assert not is_awaited(tx, row.study_id, row.round, "h9")

    inside(coordinator, look)


@pytest.mark.quick("sqlite")
def test_a_session_goes_on_from_what_is_known_of_it(coordinator: Coordinator) -> None:
    until(coordinator, "masked")

    def look(tx: Transaction, row: SessionRow) -> None:
        early = load_session(tx, row)
        record_message(tx, row, "h1", "left", None)
        tx.session.flush()
        later = continue_session(tx, row, early, row.version - 1)
        assert (early.departed, later.departed) == (frozenset(), {"h1"})
        assert later == load_session(tx, row)

    inside(coordinator, look)


@pytest.mark.quick("sqlite")
def test_octets_are_found_in_the_order_that_was_asked_for(coordinator: Coordinator) -> None:
    until(coordinator, "consistency")

    def look(tx: Transaction, row: SessionRow) -> None:
        found = octets_of(tx, row, ["h3", "h0"])
        assert [client for client, _ in found] == ["h3", "h0"]
        assert all(len(sha256) == 64 for _, sha256 in found)

    inside(coordinator, look)


@pytest.mark.quick("sqlite")
def test_forgotten_shares_leave_that_they_were_sent(coordinator: Coordinator) -> None:
    until(coordinator, "masked")

    def look(tx: Transaction, row: SessionRow) -> None:
        forget_shares(tx, row.study_id, row.round)
        tx.session.flush()
        session = load_session(tx, row)
        assert list(session.shares) == NAMES
        with pytest.raises(LookupError):
            session.shares["h0"]
        assert session.keys["h0"].client == "h0"

    inside(coordinator, look)
