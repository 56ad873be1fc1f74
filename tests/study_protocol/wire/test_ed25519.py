"""Which bytes may be a key, held against the group law and against what OpenSSL lets pass."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from study_protocol.wire.ed25519 import is_identity_key
from study_protocol.wire.signing import SigningError, decode_public_key, public_key_of, to_base64url
from tests.factories.weak_keys import SECOND_ENCODINGS, SMALL_ORDER


def test_there_are_eight_points_of_small_order_and_none_is_a_key() -> None:
    assert len(set(SMALL_ORDER)) == 8
    assert not any(is_identity_key(raw) for raw in SMALL_ORDER)


def test_openssl_takes_every_one_of_them() -> None:
    """And for some messages a signature that needs no key: R = B, S = 1, whenever h·A is the neutral element."""
    signature = bytes.fromhex("58" + "66" * 31) + (1).to_bytes(32, "little")

    def holds(raw: bytes, message: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True

    # A multiple of 8 comes once in eight messages at the latest.
    assert all(any(holds(raw, bytes([n])) for n in range(200)) for raw in SMALL_ORDER)


@pytest.mark.parametrize("raw", SECOND_ENCODINGS, ids=lambda raw: raw.hex()[:8] + raw.hex()[-2:])
def test_a_second_encoding_is_no_key(raw: bytes) -> None:
    assert not is_identity_key(raw)


def test_keys_that_somebody_made_are_keys() -> None:
    for seed in range(50):
        raw = Ed25519PrivateKey.from_private_bytes(seed.to_bytes(32, "big")).public_key().public_bytes_raw()
        assert is_identity_key(raw)
        # The other sign is a point, too; nobody knows its private half.
        assert is_identity_key(raw[:31] + bytes([raw[31] ^ 0x80]))


def test_half_of_all_numbers_are_on_no_point() -> None:
    on_curve = sum(is_identity_key(y.to_bytes(32, "little")) for y in range(2, 402))
    assert 150 < on_curve < 250


@pytest.mark.parametrize(
    "raw",
    [b"", bytes(31), bytes(33), SMALL_ORDER[1], SECOND_ENCODINGS[0]],
    ids=["empty", "too-short", "too-long", "small-order", "second-encoding"],
)
def test_what_is_no_key_is_said_so(raw: bytes) -> None:
    with pytest.raises(SigningError, match="Ed25519 key") as caught:
        public_key_of(raw)
    assert caught.value.code == "bad-key"
    with pytest.raises(SigningError):
        decode_public_key(to_base64url(raw))
