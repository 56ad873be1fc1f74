"""Sessions of people: what their groups allow now, until they expire or are ended, and nothing in a changed row."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people import sessions
from server.services.people.audit import read_log
from server.services.people.sessions import authenticate_session, begin_session, end_session, require_session
from server.single_sign_on.grants import GroupGrant
from server.single_sign_on.identity import PersonIdentity
from study_protocol.study.audit_log import Actor
from study_protocol.study.people import PersonSession
from study_protocol.study.roles import Grant
from tests.factories.studies import FakeClock

LEADS = GroupGrant(group="leads", role="lead", study="sepsis")
ADMINS = GroupGrant(group="admins", role="administrator")


@pytest.fixture
def here(coordinator: Coordinator) -> Coordinator:
    return replace(coordinator, group_grants=(LEADS, ADMINS))


def begin(here: Coordinator, *groups: str, name: str = "Ada", subject: str = "ada-1") -> PersonSession:
    identity = PersonIdentity("https://id.example", subject, name, groups or ("leads",))
    return begin_session(here, identity, 3600.0, "finish_login", "/sso/back", "request-1")


def change(here: Coordinator, statement: str, **values: Any) -> None:
    here.database.write("x", lambda tx: tx.session.execute(text(statement), values))


def refused(here: Coordinator, token: str | None, words: str = "bad-token") -> None:
    with pytest.raises(Rejected, match=words):
        authenticate_session(here, token or "")


def test_a_session_is_of_its_person(here: Coordinator) -> None:
    begun = begin(here, "admins", "leads", "others")
    person = authenticate_session(here, begun.token or "")
    assert (person.kind, person.id, person.subject, person.name) == ("session", begun.id, "ada-1", "Ada")
    assert person.grants == (Grant("lead", "sepsis"), Grant("administrator"))
    require_session(here, person)
    assert [(one.id, one.token) for one in sessions.list_sessions(here).sessions] == [(begun.id, None)]
    token = begun.token or ""
    for wrong in ("", "wrs", token[:-1], token + "0", token.replace("wrs_", "wrk_"), f"wrs_{begun.id}_", "wrs_\x00_x"):
        refused(here, wrong)


def test_its_beginning_is_in_the_audit_log(here: Coordinator) -> None:
    begin(here, "leads", "admins")
    (entry,) = read_log(here, None, 0, 10).entries
    assert entry.event.actor == Actor(kind="session", id="ada-1", name="Ada", role="administrator")
    assert (entry.event.action, entry.event.address) == ("finish_login", "/sso/back")


def test_a_person_without_a_role_has_no_session(here: Coordinator) -> None:
    with pytest.raises(Rejected, match="forbidden"):
        begin(here, "others")
    assert sessions.list_sessions(here).sessions == []
    assert read_log(here, None, 0, 10).entries == []


def test_a_session_expires(here: Coordinator, clock: FakeClock) -> None:
    begun = begin(here)
    person = authenticate_session(here, begun.token or "")
    clock.sleep(3599.0)
    require_session(here, person)
    clock.sleep(1.0)
    refused(here, begun.token, "has expired")
    with pytest.raises(Rejected, match="has expired"):
        require_session(here, person)
    assert sessions.list_sessions(here).sessions == []
    # The next login forgets it.
    begin(here)
    refused(here, begun.token, "not valid")


def test_a_session_is_ended_for_good(here: Coordinator) -> None:
    begun, other = begin(here), begin(here)
    person = authenticate_session(here, begun.token or "")
    for _ in range(2):
        end_session(here, begun.id)
        refused(here, begun.token)
    with pytest.raises(Rejected, match="was ended"):
        require_session(here, person)
    assert authenticate_session(here, other.token or "").id == other.id


def test_another_file_of_grants_counts_at_once(here: Coordinator) -> None:
    """The file is read when the coordinator starts. Sessions that began before go on with what it says now."""
    begun = begin(here)
    person = authenticate_session(here, begun.token or "")
    viewer = GroupGrant(group="leads", role="viewer", study="sepsis")
    restarted = replace(here, group_grants=(viewer,))
    assert authenticate_session(restarted, begun.token or "").grants == (Grant("viewer", "sepsis"),)
    with pytest.raises(Rejected, match="bad-token"):
        require_session(restarted, person)
    refused(replace(here, group_grants=(ADMINS,)), begun.token, "no role here any more")
    refused(replace(here, group_grants=()), begun.token, "no role here any more")


def test_the_token_against_forged_requests_is_of_one_session(here: Coordinator) -> None:
    first, second = begin(here).token or "", begin(here).token or ""
    assert sessions.csrf_token_of(first) == sessions.csrf_token_of(first) != sessions.csrf_token_of(second)
    assert first.rpartition("_")[2] not in sessions.csrf_token_of(first)
    assert len(sessions.csrf_token_of("wrs_é_\xff")) == 64


def test_groups_that_were_changed_in_the_database(here: Coordinator) -> None:
    begun = begin(here)
    for groups in ("[]", "{}", '"leads"', "7", "null", '{"leads": 1}', "[7, null]", '[7, "leads"]', '["others"]'):
        change(here, "UPDATE sessions SET groups = :groups", groups=groups)
        refused(here, begun.token)
    change(here, "UPDATE sessions SET groups = :groups", groups='["leads"]')
    assert authenticate_session(here, begun.token or "").grants == (Grant("lead", "sepsis"),)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("groups", value) for value in ("x", "[{", b"\xff", "")),
        *(("expires_at", value) for value in ("x", b"x", "")),
        *(("name", value) for value in (b"x", "a\x1b[31m", "a\nb", "\u202ea")),
        *(("subject", value) for value in (b"x", "a\nb")),
        *(("secret_sha256", value) for value in (7, b"x", "")),
    ],
)
def test_a_column_of_another_value_opens_nothing(
    here: Coordinator, column: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    change(here, "PRAGMA ignore_check_constraints = ON")
    begun, sound = begin(here), begin(here)
    change(here, f"UPDATE sessions SET {column} = :value WHERE id = :id", value=value, id=begun.id)
    refused(here, begun.token)
    assert authenticate_session(here, sound.token or "").id == sound.id
    # It hides no other session, and is ended as every other one.
    with caplog.at_level(logging.ERROR):
        assert sound.id in [one.id for one in sessions.list_sessions(here).sessions]
    end_session(here, begun.id)
    assert [one.id for one in sessions.list_sessions(here).sessions] == [sound.id]


def test_a_name_or_a_group_in_any_alphabet(here: Coordinator) -> None:
    name = "Ада 李\U0001f600"
    group = GroupGrant(group="/консорциум/led", role="viewer")
    begun = begin(replace(here, group_grants=(group,)), group.group, name=name)
    assert authenticate_session(replace(here, group_grants=(group,)), begun.token or "").name == name
