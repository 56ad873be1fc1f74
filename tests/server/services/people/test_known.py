"""Whose token it is: a key's or a session's, and never the wrong kind of answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people import known
from server.services.people.keys import create_key, revoke_key
from server.services.people.person import Person
from server.services.people.sessions import begin_session, end_session
from server.single_sign_on.grants import GroupGrant
from server.single_sign_on.identity import PersonIdentity
from study_protocol.study.people import ApiKeyCreate


@pytest.fixture
def here(coordinator: Coordinator) -> Coordinator:
    return replace(coordinator, group_grants=(GroupGrant(group="leads", role="lead"),))


def session(here: Coordinator) -> str:
    identity = PersonIdentity("https://id.example", "ada-1", "Ada", ("leads",))
    return begin_session(here, identity, 60.0, "finish_login", "/sso/back", "").token or ""


def key(here: Coordinator) -> str:
    return create_key(here, ApiKeyCreate(role="viewer", name="Grace")).key or ""


def test_each_token_has_its_person(here: Coordinator) -> None:
    found = known.authenticate_each(here, [key(here), session(here), "wrs_0_0", "wrk_0_0", "wrs_\x00_0", ""])
    people = [(each.kind, each.name) if isinstance(each, Person) else None for each in found]
    assert people == [("key", "Grace"), ("session", "Ada"), None, None, None, None]
    assert all(isinstance(each, Rejected) and each.code == "bad-token" for each in found[2:])


def test_a_person_may_go_on_until_key_or_session_end(here: Coordinator) -> None:
    people = [known.authenticate(here, token) for token in (key(here), session(here))]
    for each, end in zip(people, (revoke_key, end_session), strict=True):
        known.require_valid(here, each)
        end(here, each.id)
        with pytest.raises(Rejected, match="bad-token"):
            known.require_valid(here, each)


def test_every_token_of_a_person_begins_with_its_kind(here: Coordinator) -> None:
    assert all(token.startswith(known.PREFIXES) for token in (key(here), session(here)))
    assert not "wrl_0_0".startswith(known.PREFIXES)
