"""Keys of people: shown once, revoked for good, and never two answers to what is wrong with one."""

from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.studies import operators
from study_protocol.study.messages import OperatorKeyCreate


@pytest.mark.quick("sqlite")
def test_keys_of_people(coordinator: Coordinator) -> None:
    made = operators.create_key(coordinator, OperatorKeyCreate(role="operator", label="ward 3"))
    assert made.key is not None
    assert operators.authenticate(coordinator, made.key) == operators.Operator(made.id, "operator")
    listed = operators.list_keys(coordinator).keys
    assert [(key.id, key.label, key.key) for key in listed] == [(made.id, "ward 3", None)]
    for bad in ("", "wrk", made.key[:-1], made.key + "0", made.key.replace("wrk_", "wri_"), f"wrk_{'0' * 16}_x"):
        with pytest.raises(Rejected, match="bad-token"):
            operators.authenticate(coordinator, bad)
    revoked = operators.revoke_key(coordinator, made.id)
    assert operators.revoke_key(coordinator, made.id) == revoked
    with pytest.raises(Rejected, match="bad-token"):
        operators.authenticate(coordinator, made.key)
    with pytest.raises(Rejected, match="unknown-key"):
        operators.revoke_key(coordinator, "0" * 16)
