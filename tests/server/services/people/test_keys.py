"""Keys of people: shown once, revoked for good, and never two answers to what is wrong with one."""

from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people import keys
from server.services.people.person import Person
from study_protocol.study.people import ApiKeyCreate
from study_protocol.study.roles import Grant


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
