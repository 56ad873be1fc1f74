"""What the tables of the secure sum refuse, on both kinds of database."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from server.db.session import Transaction
from server.db.tables import SessionMessageRow, SessionRow
from server.services.coordinator import Coordinator
from tests.factories.settings import settings
from tests.factories.studies import open_study, work


@pytest.fixture
def opened(coordinator: Coordinator) -> Coordinator:
    """One session of study 1 in round 1."""
    open_study(coordinator, clients=5, settings=settings(masked=True))
    work(coordinator)
    return coordinator


def message(**changes: object) -> SessionMessageRow:
    given = {"study_id": 1, "round": 1, "client": "h0", "step": "keys", "number": 1, "body": "{}"}
    return SessionMessageRow(**given | changes)


def test_what_a_client_says_and_sends_is_stored(opened: Coordinator) -> None:
    opened.database.write(
        "rows", lambda tx: tx.session.add_all([message(), message(step="manifest", octets_sha256="0" * 64)])
    )
    count = opened.database.read("count", lambda tx: tx.session.query(SessionMessageRow).count())
    assert count == 2


@pytest.mark.quick("sqlite-hash", "sqlite-octets-without-manifest", "sqlite-step")
@pytest.mark.parametrize(
    "broken",
    [
        lambda: message(step="whisper"),
        lambda: message(round=2),
        lambda: message(step="manifest", octets_sha256="short"),
        lambda: message(step="manifest"),
        lambda: message(octets_sha256="0" * 64),
    ],
    ids=["step", "message-of-no-session", "hash", "manifest-without-octets", "octets-without-manifest"],
)
def test_rows_that_break_a_rule_are_refused(opened: Coordinator, broken: Callable[[], object]) -> None:
    with pytest.raises(IntegrityError):
        opened.database.write("rows", lambda tx: tx.session.add(broken()))


def test_nothing_is_said_twice(opened: Coordinator) -> None:
    opened.database.write("rows", lambda tx: tx.session.add(message()))
    with pytest.raises(IntegrityError):
        opened.database.write("rows", lambda tx: tx.session.add(message(body="{1}")))


@pytest.mark.quick("sqlite-a-reason-too-soon", "sqlite-failed-without-a-reason", "sqlite-phase")
@pytest.mark.parametrize(
    "values",
    [{"phase": "asleep"}, {"phase": "failed"}, {"failure": "expired"}, {"phase": "summed"}],
    ids=["phase", "failed-without-a-reason", "a-reason-too-soon", "summed-without-a-result"],
)
def test_a_session_ends_with_a_reason_or_a_result(opened: Coordinator, values: dict[str, str]) -> None:
    def spoil(tx: Transaction) -> None:
        tx.session.execute(update(SessionRow).values(**values))

    with pytest.raises(IntegrityError):
        opened.database.write("spoil", spoil)
