"""Rows that no program of ours wrote are not loaded, and what is said of them never quotes a value."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from server.db.row_checks import RowBroken, require_sound
from server.db.session import Transaction
from server.db.tables import Base, ClientRow, ModelRow, ParticipantRow, RoundRow, StudyRow
from server.services.coordinator import Coordinator
from tests.factories.forging import forge, while_forged
from tests.factories.hospital_double import update
from tests.factories.studies import open_study, work

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def running(coordinator: Coordinator) -> Coordinator:
    """Round 1 is released, round 2 under way."""
    hospitals = open_study(coordinator, clients=2)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    work(coordinator)
    return coordinator


def load(tx: Transaction, kind: type[Base]) -> int:
    return len(tx.session.scalars(select(kind)).all())


def sound(tx: Transaction) -> None:
    require_sound(tx, 1)


BROKEN = {
    "a text that is a number": (StudyRow, "studies.model_spec", "UPDATE studies SET model_spec = '7'"),
    "a control character": (StudyRow, "studies.title", "UPDATE studies SET title = char(27) || 'secret'"),
    "a word of its own": (StudyRow, "studies.state", "UPDATE studies SET state = 'secret'"),
    "no key": (ClientRow, "clients.public_key", "UPDATE clients SET public_key = 'secret'"),
    "a digest in capitals": (ModelRow, "models.sha256", "UPDATE models SET sha256 = upper(sha256)"),
    "no octets": (ModelRow, "models.bytes", "UPDATE models SET bytes = 0"),
    "a number below zero": (RoundRow, "rounds.deadline", "UPDATE rounds SET deadline = -1.0"),
    "behind the last day": (RoundRow, "rounds.deadline", "UPDATE rounds SET deadline = 253402300800.0"),
    "a text for a time": (RoundRow, "rounds.started_at", "UPDATE rounds SET started_at = 'secret'"),
    "octets for a text": (ParticipantRow, "participants.sha256", "UPDATE participants SET sha256 = x'00'"),
    "a report that is none": (ParticipantRow, "participants.log_moments", "UPDATE participants SET log_moments = '7'"),
}


def test_a_broken_row_is_not_loaded(running: Coordinator) -> None:
    forge(running, "PRAGMA ignore_check_constraints = ON")
    for name, (kind, column, statement) in BROKEN.items():
        with pytest.raises(RowBroken, match=f"^{column} holds what the coordinator never writes$"):
            while_forged(running, statement, lambda tx, kind=kind: load(tx, kind))
        # The study's own row is loaded to find it.
        if kind is not StudyRow:
            with pytest.raises(RowBroken, match=column):
                while_forged(running, statement, sound)
        assert running.database.read("load", lambda tx, kind=kind: load(tx, kind)) > 0, name


def test_a_sound_study_passes_and_what_a_row_names_is_there(running: Coordinator) -> None:
    running.database.read("sound", sound)
    forge(running, "PRAGMA ignore_check_constraints = ON")
    for statement, said in {
        "DELETE FROM budgets": "budgets has no row",
        "DELETE FROM models WHERE version = 0": "models lacks the model",
        "UPDATE rounds SET query = 5, base_version = NULL WHERE number = 1": "queries lacks the query",
        # Each column alone holds what it may hold: both together are forbidden by the table's rule.
        "UPDATE rounds SET query = 5 WHERE number = 1": "rounds holds what its own rules forbid",
    }.items():
        with pytest.raises(RowBroken, match=said):
            while_forged(running, statement, sound)
