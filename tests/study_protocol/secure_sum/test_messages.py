"""Parameters: canonical bytes and every rule; messages: canonical octets and one share per peer."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from study_protocol.secure_sum.messages import (
    Deadlines,
    KeysMessage,
    ParameterFault,
    SessionParameters,
    min_survivors_of,
    min_threshold,
    opened_shares,
    require_sound,
)
from study_protocol.secure_sum.vectors import VectorSpec, count_vector
from tests.factories.secure_sum import plan_of_session


def plan(clients: int = 7, colluders: int = 1, ring: int | None = None, **changes: object) -> SessionParameters:
    times = Deadlines(keys=1, shares=2, masked=3)
    vectors = [count_vector("terms", 4, 60)]
    planned = plan_of_session(vectors, colluders, 3, ring, round=3, start=0, deadlines=times, expires=4)
    made = planned.parameters(clients, session=bytes(32), now=0)
    return SessionParameters.model_validate({**made.model_dump(), **changes})


@pytest.mark.parametrize(
    ("clients", "colluders", "threshold"),
    # The table of thresholds that goes with 2t > n + c, worked out by hand.
    [
        (3, 1, 3),
        (4, 1, 3),
        (5, 1, 4),
        (7, 1, 5),
        (7, 2, 5),
        (10, 1, 6),
        (10, 3, 7),
        (20, 6, 14),
        (50, 10, 31),
        (100, 20, 61),
    ],
)
def test_thresholds(clients, colluders, threshold) -> None:
    assert min_threshold(clients, colluders) == threshold
    assert 2 * threshold > clients + colluders >= 2 * (threshold - 1)


def test_three_honest_survivors_except_among_three() -> None:
    assert min_survivors_of(4, 1, 3) == 4
    assert min_survivors_of(10, 3, 7) == 7
    assert min_survivors_of(3, 1, 3) == 3
    assert min_survivors_of(3, 0, 2) == 3


def test_canonical_bytes_round_trip() -> None:
    made = plan()
    raw = made.to_bytes()
    assert SessionParameters.from_bytes(raw) == made
    assert raw == json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":")).encode()


def test_other_spellings_of_the_same_parameters_are_refused() -> None:
    raw = plan().to_bytes()
    for other in (
        raw + b" ",
        raw.replace(b'"round":3', b'"round":"3"'),
        raw.replace(b'"round":3', b'"round":4,"round":3'),
        raw.replace(b'"round":3', b'"round":3.0'),
        raw[:-1] + b',"zebra":1}',
        b"[]",
        b"",
    ):
        with pytest.raises(ParameterFault) as refused:
            SessionParameters.from_bytes(other)
        assert refused.value.code == "malformed-parameters"


WRAPPING = VectorSpec(name="terms", encoding="counts", length=1, ring_bits=32, scale_bits=0, cap=2**31 // 7 + 1)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("unknown-suite", {"suite": "rot13"}),
        ("too-few-clients", {"clients": 2, "threshold": 2, "neighbours": 1, "min_survivors": 2}),
        (
            "too-few-clients",
            {"clients": 3, "colluders": 2, "threshold": 3, "neighbours": 2, "min_survivors": 3},
        ),
        # Odd, not above the colluders, more than there are.
        ("unsound-graph", {"neighbours": 3}),
        ("unsound-graph", {"neighbours": 2, "colluders": 2}),
        ("unsound-graph", {"neighbours": 8}),
        ("low-threshold", {"neighbours": 4, "threshold": 3}),
        ("unreachable-threshold", {"neighbours": 4, "threshold": 6}),
        ("low-threshold", {"threshold": 4}),
        ("unreachable-threshold", {"threshold": 8}),
        ("unreachable-threshold", {"min_survivors": 8}),
        ("low-survivors", {"min_survivors": 4}),
        ("repeated-vector", {"vectors": (count_vector("terms", 4, 50),) * 2}),
        ("unsound-vector", {"vectors": (WRAPPING,)}),
        ("unordered-deadlines", {"expires": 2}),
        ("unordered-deadlines", {"deadlines": Deadlines(keys=3, shares=2, masked=3)}),
    ],
)
def test_unsound_parameters_are_refused_by_rule(code, changes) -> None:
    with pytest.raises(ParameterFault) as refused:
        require_sound(plan(**changes))
    assert refused.value.code == code
    require_sound(plan())


def test_a_ring_needs_its_own_threshold_and_the_quorum_of_all() -> None:
    ring = plan(7, 1, neighbours=4, threshold=4)
    require_sound(ring)
    assert (ring.quorum, ring.min_survivors, ring.min_clients) == (5, 5, 5)
    # t alone would let two survivor lists be confirmed.
    with pytest.raises(ParameterFault) as refused:
        require_sound(ring.model_copy(update={"min_survivors": 4}))
    assert refused.value.code == "low-survivors"


@pytest.mark.parametrize("colluders", [1, 2, 5, 10])
def test_planned_rings_are_sound(colluders) -> None:
    for neighbours in range(colluders + 2 - colluders % 2, 40, 2):
        for clients in range(colluders + 3, 60):
            made = plan(clients, colluders, ring=neighbours)
            require_sound(made)
            k = made.neighbours
            assert k == (clients - 1 if clients <= neighbours + 1 else neighbours)
            # So many of a client and its neighbours may be lost.
            assert k + 1 - made.threshold == (k - colluders) // 2


@pytest.mark.parametrize("clients", range(3, 60))
def test_planned_sessions_are_sound(clients) -> None:
    for colluders in range(1 if clients == 3 else 0, 2 if clients == 3 else max(clients - 3, 1)):
        require_sound(plan(clients, colluders))


def test_octets_have_one_spelling() -> None:
    message = KeysMessage(client="a", share_key=b"\x01" * 32, mask_key=b"\x02" * 32, signature=b"\x03" * 64)
    raw = message.model_dump_json()
    assert KeysMessage.model_validate_json(raw) == message
    body = json.loads(raw)
    assert "=" not in body["share_key"]
    last = body["share_key"][-1]
    for bad in (
        body["share_key"] + "=",
        body["share_key"][:-1] + chr(ord(last) + 1),
        "!" * 43,
        "é" * 43,
        body["share_key"][:-4],
    ):
        with pytest.raises(ValidationError):
            KeysMessage.model_validate_json(json.dumps({**body, "share_key": bad}))


def test_a_share_is_of_the_one_kind_that_the_survivors_prescribe() -> None:
    shares = b"".join(bytes([i]) * 36 for i in range(3))
    opened = list(opened_shares(("a", "b", "c"), {"a", "c"}, shares))
    assert opened == [("a", "seed", bytes(36)), ("b", "mask-key", b"\x01" * 36), ("c", "seed", b"\x02" * 36)]
