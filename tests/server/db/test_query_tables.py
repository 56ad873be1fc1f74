"""What the tables of queries refuse."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from server.db.query_tables import ConsentRow, QueryRow
from server.services.coordinator import Coordinator
from tests.factories.asked_studies import document, open_asked

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def query(noise: float = 5.0, **changes: object) -> QueryRow:
    asked = document(noise_multiplier=noise)
    given = {"study_id": 1, "number": 1, "sha256": asked.digest(), "document": asked.model_dump(mode="json")}
    return QueryRow(**given | {"state": "waiting", "created_at": 0.0} | changes)


def consent(**changes: object) -> ConsentRow:
    given = {"study_id": 1, "query": 1, "client": "h0", "consent": {"allowed": True}, "at": 0.0}
    return ConsentRow(**given | changes)


@pytest.fixture
def opened(coordinator: Coordinator) -> Coordinator:
    open_asked(coordinator, clients=2)
    coordinator.database.write("ask", lambda tx: tx.session.add(query()))
    return coordinator


def test_questions_and_the_word_of_each_hospital_are_stored(opened: Coordinator) -> None:
    more = [query(6.0, number=2, state="failed", reason="stopped"), consent(), consent(client="h1")]
    opened.database.write("more", lambda tx: tx.session.add_all(more))
    counts = opened.database.read("count", lambda tx: [tx.session.query(row).count() for row in (QueryRow, ConsentRow)])
    assert counts == [2, 2]


BROKEN = {
    "the same document twice": (lambda: query(number=2), "UNIQUE"),
    "number 0": (lambda: query(6.0, number=0), "number"),
    "answered without an answer": (lambda: query(6.0, number=2, state="answered"), "answered_has_an_answer"),
    "an answer too early": (lambda: query(6.0, number=2, state="waiting", answer={}), "answered_has_an_answer"),
    "failed for no reason": (lambda: query(6.0, number=2, state="failed"), "failed_for_a_reason"),
    "a reason too early": (lambda: query(6.0, number=2, reason="stopped"), "failed_for_a_reason"),
    "no such state": (lambda: query(6.0, number=2, state="forgotten"), "state"),
    "a short digest": (lambda: query(6.0, number=2, sha256="a" * 63), "sha256"),
    "to no query": (lambda: consent(query=2), "FOREIGN KEY"),
    "of nobody": (lambda: consent(client="h9"), "FOREIGN KEY"),
}


def test_rows_that_break_a_rule_are_refused(opened: Coordinator) -> None:
    for row, rule in BROKEN.values():
        with pytest.raises(IntegrityError, match=rule):
            opened.database.write("spoil", lambda tx, row=row: tx.session.add(row()))
