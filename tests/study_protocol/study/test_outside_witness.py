"""Auditors who sign the heads of a ledger."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from study_protocol.study.outside_witness import OutsideWitness, require_different
from study_protocol.wire.signing import encode_public_key

KEYS = [encode_public_key(Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)).public_key()) for n in (1, 2)]


def test_two_with_one_name_or_one_key_are_refused() -> None:
    first, other = (OutsideWitness(name=name, public_key=key) for name, key in zip("ab", KEYS, strict=True))
    assert require_different((first, other)) == (first, other)
    assert require_different(()) == ()
    for twin in (OutsideWitness(name="a", public_key=KEYS[1]), OutsideWitness(name="b", public_key=KEYS[0])):
        with pytest.raises(ValueError, match="a name and a key of its own"):
            require_different((first, twin))


@pytest.mark.parametrize(
    "key",
    ["", "A" * 42, "A" * 44, "A" * 42 + "=", "A" * 43 + "\n", "A" * 43],
    ids=["none", "short", "long", "padded", "line", "of small order"],
)
def test_a_key_is_32_bytes_of_a_point_that_can_sign(key: str) -> None:
    with pytest.raises(ValidationError, match="public_key"):
        OutsideWitness(name="audit", public_key=key)


def test_a_name_is_one_that_a_hospital_may_have() -> None:
    with pytest.raises(ValidationError, match="name"):
        OutsideWitness(name="The Auditor", public_key=KEYS[0])
