"""What the tables themselves refuse, on both kinds of database, and what they say of their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from server.db.people_tables import ApiKeyRow
from server.db.session import Database, Transaction
from server.db.tables import Base, EventRow, StudyRow

HASH = "0" * 64


def test_every_column_says_what_it_holds() -> None:
    silent = [str(c) for table in Base.metadata.tables.values() for c in table.columns if not c.comment]
    assert silent == []


def study(**changes: Any) -> StudyRow:
    given: dict[str, Any] = {
        "name": "sepsis",
        "title": "",
        "state": "draft",
        "state_since": 0.0,
        "stop_reason": None,
        "settings": {},
        "settings_sha256": HASH,
        "model_spec": None,
        "roster_sha256": HASH,
        "version": 0,
        "quorum": 1,
        "abandoned_in_a_row": 0,
        "next_round_at": 0.0,
        "created_at": 0.0,
    }
    return StudyRow(**given | changes)


def key(**changes: Any) -> ApiKeyRow:
    given: dict[str, Any] = {"id": "a", "role": "viewer", "name": "", "secret_sha256": HASH, "created_at": 0.0}
    return ApiKeyRow(**given | changes)


def stored(database: Database, *rows: Base) -> None:
    def write(tx: Transaction) -> None:
        for row in rows:
            tx.session.add(row)
            tx.session.flush()

    database.write("rows", write)


def test_a_row_that_keeps_every_rule_is_stored(database: Database) -> None:
    stored(database, study(), key(), study(name="stroke", state="finished", stop_reason="stopped"))
    assert database.read("count", lambda tx: tx.session.query(StudyRow).count()) == 2


@pytest.mark.quick(
    "sqlite-hash",
    "sqlite-no-reason",
    "sqlite-no-such-study",
    "sqlite-quorum",
    "sqlite-reason-too-soon",
    "sqlite-role",
    "sqlite-state",
    "sqlite-version",
)
@pytest.mark.parametrize(
    "broken",
    [
        lambda: study(state="asleep"),
        lambda: study(state="finished"),
        lambda: study(stop_reason="stopped"),
        lambda: study(quorum=0),
        lambda: study(version=-1),
        lambda: key(role="king"),
        lambda: key(secret_sha256="short"),
        lambda: key(expires_at=-1.0),
        lambda: EventRow(study_id=7, number=1, kind="opened", round=None, at=0.0),
    ],
    ids=[
        "state",
        "no-reason",
        "reason-too-soon",
        "quorum",
        "version",
        "role",
        "hash",
        "expired-before-it-was-made",
        "no-such-study",
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(database: Database, broken: Callable[[], Base]) -> None:
    with pytest.raises(IntegrityError):
        stored(database, broken())


def test_two_studies_never_share_a_name(database: Database) -> None:
    stored(database, study())
    with pytest.raises(IntegrityError):
        stored(database, study())
