"""Rows as they are stored: whatever is changed in them is seen, and other studies are not."""

from __future__ import annotations

import pytest

from server.db.raw_rows import RawRows, raw_rows
from server.services.coordinator import Coordinator
from tests.factories.forging import forge, while_forged
from tests.factories.studies import open_study, work

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def stored(coordinator: Coordinator, study: str = "sepsis") -> RawRows:
    return coordinator.database.read("raw", lambda tx: raw_rows(tx, study))


@pytest.fixture
def running(coordinator: Coordinator) -> Coordinator:
    open_study(coordinator, clients=2)
    work(coordinator)
    return coordinator


def test_there_are_a_row_of_the_study_and_one_of_each_member(running: Coordinator) -> None:
    assert [len({"h0", "h1"} & set(row)) for row in stored(running)] == [0, 1, 1]
    assert stored(running, "nowhere") == ()


def other_first(column: str) -> str:
    """SQL of another text than is in the column, whatever that begins with."""
    return f"CASE substr({column}, 1, 1) WHEN 'x' THEN 'y' ELSE 'x' END || substr({column}, 2)"


CHANGES = [
    "UPDATE studies SET title = 'another'",
    "UPDATE studies SET settings = json_insert(settings, '$.more', 1)",
    "UPDATE budgets SET state = json_insert(state, '$.more', 1)",
    f"UPDATE budgets SET signature = {other_first('signature')}",
    "UPDATE ledger SET body = body || ' ' WHERE sequence = (SELECT max(sequence) FROM ledger)",
    f"UPDATE clients SET public_key = {other_first('public_key')} WHERE name = 'h1'",
    "DELETE FROM ledger WHERE sequence = (SELECT max(sequence) FROM ledger)",
]


def test_what_is_changed_is_seen(running: Coordinator) -> None:
    """Broken values, too: they are compared and not read."""
    before = stored(running)
    for statement in CHANGES:
        assert while_forged(running, statement, lambda tx: raw_rows(tx, "sepsis")) != before, statement
    assert stored(running) == before


def test_only_the_newest_entry_counts_and_no_other_study(running: Coordinator) -> None:
    before = stored(running)
    forge(running, "UPDATE ledger SET body = body || ' ' WHERE sequence = 1")
    open_study(running, "other", clients=2)
    assert stored(running) == before
