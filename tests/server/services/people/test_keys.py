"""Keys of people: shown once, revoked for good, and never two answers to what is wrong with one."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from pydantic import ValidationError

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people import keys
from server.services.people.person import Person
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.roles import Grant
from tests.factories.studies import FakeClock


def test_keys_of_people(coordinator: Coordinator) -> None:
    made = keys.create_key(coordinator, ApiKeyCreate(role="administrator", name="ward 3"))
    assert made.key is not None
    assert keys.authenticate(coordinator, made.key) == Person(made.id, "ward 3", (Grant("administrator"),))
    listed = keys.list_keys(coordinator).keys
    assert [(key.id, key.name, key.key) for key in listed] == [(made.id, "ward 3", None)]
    for bad in ("", "wrk", made.key[:-1], made.key + "0", made.key.replace("wrk_", "wri_"), f"wrk_{'0' * 16}_x"):
        with pytest.raises(Rejected, match="bad-token"):
            keys.authenticate(coordinator, bad)
    revoked = keys.revoke_key(coordinator, made.id)
    assert keys.revoke_key(coordinator, made.id) == revoked
    with pytest.raises(Rejected, match="bad-token"):
        keys.authenticate(coordinator, made.key)
    with pytest.raises(Rejected, match="unknown-key"):
        keys.revoke_key(coordinator, "0" * 16)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "change",
    [
        "name = 'A' || char(27)",
        "name = NULL",
        "created_at = 'x'",
        "created_at = 1e300",
        "expires_at = 'later'",
        "expires_at = 9e999",
        "role = 'root'",
        "study = 'No Study'",
        "revoked_at = ''",
        "secret_sha256 = x'00'",
    ],
)
def test_a_key_that_no_list_shows_opens_nothing(coordinator: Coordinator, change: str) -> None:
    """A row with values that the coordinator never writes is left out of the list, and could not be revoked."""
    made = keys.create_key(coordinator, ApiKeyCreate(role="viewer", study="icu", name="Ada"))
    person = keys.authenticate(coordinator, made.key or "")
    _unguard(coordinator, f"UPDATE api_keys SET {change}")
    assert keys.list_keys(coordinator).keys == []
    with pytest.raises(Rejected, match="bad-token"):
        keys.authenticate(coordinator, made.key or "")
    with pytest.raises(Rejected, match="bad-token"):
        keys.require_key(coordinator, person)


def _unguard(coordinator: Coordinator, statement: str) -> None:
    """Write what no rule of the table allows, as the owner of the file can."""
    path = coordinator.database.engine.url.database
    with closing(sqlite3.connect(path or "", isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'api_keys'")
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute(statement)


def test_a_key_expires_by_the_database_s_clock(coordinator: Coordinator, clock: FakeClock) -> None:
    made = keys.create_key(coordinator, ApiKeyCreate(role="viewer", name="Ada", expires_in_days=2))
    person = keys.authenticate(coordinator, made.key or "")
    clock.seconds += 2 * 86400 - 1
    keys.require_key(coordinator, person)
    clock.seconds += 1
    for check in (
        lambda: keys.authenticate(coordinator, made.key or ""),
        lambda: keys.require_key(coordinator, person),
    ):
        with pytest.raises(Rejected, match="expired"):
            check()


@pytest.mark.parametrize(
    "name", ["Ada\u202e", "A\u200bda", "\u00adAda", "Ada\n", "Ada\ud800", "Ada\u2066", "\u3164", " ", "- -"]
)
def test_a_name_that_is_not_seen_as_it_is_stored_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ApiKeyCreate(role="viewer", name=name)


def test_a_name_is_kept_trimmed_and_in_one_form() -> None:
    assert ApiKeyCreate(role="viewer", name=" Zoe\u0308 Ayşe ").name == "Zoë Ayşe"
    with pytest.raises(ValidationError):
        ApiKeyCreate(role="viewer", name="\u0958" * 60)
