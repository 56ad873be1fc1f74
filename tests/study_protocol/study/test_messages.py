"""Everything that travels as JSON: nothing unknown, nothing loose, the same bytes for the same assignment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.study import messages
from study_protocol.study.messages import AssignmentBody, InvitationCreate, Metrics, Refusal, RosterEntry
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import Message

KINDS = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message)]
BODY: dict[str, Any] = {
    "study": "sepsis",
    "client": "north",
    "round": 3,
    "phase": "train",
    "deadline": "2030-01-02T03:04:05Z",
    "model": {"version": 2, "sha256": "0a" * 32, "bytes": 64},
    "settings_sha256": "0b" * 32,
    "roster_sha256": "0c" * 32,
    "ledger": {"study": "sepsis", "entries": 7, "sha256": "0d" * 32},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_unknown_fields_are_refused_and_values_never_change(kind) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        kind.model_validate({"unheard_of": 1})
    assert kind.model_config.get("frozen") is True
    assert kind.model_config.get("allow_inf_nan") is False


def test_what_is_signed_comes_back_to_the_byte() -> None:
    body = AssignmentBody.model_validate(BODY)
    text = canonical_json(body.model_dump(mode="json"))
    assert AssignmentBody.model_validate_json(text) == body
    assert canonical_json(AssignmentBody.model_validate_json(text).model_dump(mode="json")) == text
    assert json.loads(text) == BODY | {"query": None}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("round", 0),
        ("phase", "evaluate"),
        ("deadline", "2030-01-02T03:04:05"),
        ("study", "Sepsis"),
        pytest.param("client", "north\n", id="client-newline"),
        ("client", "a" * 64),
        pytest.param("settings_sha256", "0B" * 32, id="settings_sha256-capitals"),
        ("ledger", {"study": "sepsis", "entries": -1, "sha256": "0d" * 32}),
        ("model", {"version": 0, "sha256": "0a" * 32, "bytes": 0}),
    ],
)
def test_an_assignment_of_another_shape_is_none(field, value) -> None:
    with pytest.raises(ValidationError, match=field):
        AssignmentBody.model_validate(BODY | {field: value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Refusal, {"code": "Not a code"}),
        (Refusal, {"code": "own-budget", "detail": "x" * 501}),
        (Metrics, {"evaluation_set": "held-out", "values": {}}),
        (Metrics, {"evaluation_set": "held-out", "values": {"accuracy": float("nan")}}),
        (Metrics, {"evaluation_set": "held-out", "values": {"accuracy": -0.0}}),
        (InvitationCreate, {"client": "north", "expires_in_seconds": 59}),
        (RosterEntry, {"client": "north", "public_key": "A" * 42, "state": "active"}),
        (RosterEntry, {"client": "north", "public_key": "A" * 43, "state": "invited"}),
    ],
)
def test_values_outside_their_range_are_refused(kind, value) -> None:
    with pytest.raises(ValidationError):
        kind.model_validate(value)
