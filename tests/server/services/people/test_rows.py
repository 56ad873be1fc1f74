"""Lists of keys and sessions: a row that was changed is left out, and hides no other one."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import text

from server.services.coordinator import Coordinator
from server.services.people.keys import create_key, list_keys
from study_protocol.study.people import ApiKeyCreate


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_broken_row_hides_no_other(coordinator: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    first, second = (create_key(coordinator, ApiKeyCreate(role="viewer", name=name)) for name in ("Ada", "Grace"))
    statement = text("UPDATE api_keys SET name = char(10) WHERE id = :id")
    coordinator.database.write("x", lambda tx: tx.session.execute(statement, {"id": first.id}))
    with caplog.at_level(logging.ERROR):
        assert [key.id for key in list_keys(coordinator).keys] == [second.id]
    (record,) = caplog.records
    assert "api_keys.name" in record.getMessage()
    assert getattr(record, "event", None) == "database-differs"
