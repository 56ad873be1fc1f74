"""The rules that the database itself keeps for rows of people."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from server.db.people_tables import ApiKeyRow, AuditHeadRow, AuditRow, DeviceLoginRow, LoginSessionRow
from server.db.session import Database
from server.db.table_base import Base

HASH = "0" * 64
ROWS: dict[type[Base], dict[str, Any]] = {
    ApiKeyRow: {"id": "a", "role": "lead", "name": "Ada", "secret_sha256": HASH, "created_at": 1.0, "expires_at": 2.0},
    LoginSessionRow: {
        "id": "a",
        "subject": "ada-1",
        "name": "Ada",
        "groups": ["leads"],
        "secret_sha256": HASH,
        "created_at": 1.0,
        "expires_at": 2.0,
    },
    DeviceLoginRow: {"id": "a", "secret_sha256": HASH, "pending": {}, "asked_until": 0.0, "expires_at": 2.0},
    AuditRow: {"study": "", "sequence": 1, "event": "{}", "previous": HASH, "sha256": HASH},
    AuditHeadRow: {"study": "", "entries": 1, "sha256": HASH},
}


def _store(database: Database, kind: type[Base], **changes: Any) -> None:
    row = ROWS[kind] | changes
    database.write("store", lambda tx: tx.session.add(kind(**row)))


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__tablename__)
def test_a_row_that_keeps_every_rule_is_stored_once(database: Database, kind: type[Base]) -> None:
    _store(database, kind)
    with pytest.raises(IntegrityError):
        _store(database, kind)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ApiKeyRow, {"role": "operator"}),
        (ApiKeyRow, {"secret_sha256": "0"}),
        (ApiKeyRow, {"expires_at": 0.5}),
        (LoginSessionRow, {"secret_sha256": "0"}),
        (LoginSessionRow, {"expires_at": 0.5}),
        (LoginSessionRow, {"groups": None}),
        (DeviceLoginRow, {"secret_sha256": "0"}),
        (AuditRow, {"sequence": 0}),
        (AuditRow, {"previous": "0"}),
        (AuditHeadRow, {"entries": -1}),
    ],
    ids=lambda value: getattr(value, "__tablename__", None) or "-".join(value),
)
def test_a_row_that_breaks_a_rule_is_refused(database: Database, kind: type[Base], wrong: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        _store(database, kind, **wrong)


@pytest.mark.parametrize("statement", ["UPDATE audit_log SET event = ''", "DELETE FROM audit_log"])
def test_the_audit_log_is_append_only(database: Database, statement: str) -> None:
    _store(database, AuditRow)
    with pytest.raises(Exception, match="append-only"):
        database.write("change", lambda tx: tx.session.execute(text(statement)))
    assert database.read("look", lambda tx: tx.session.query(AuditRow).count()) == 1
