"""Primitives against published vectors, the key schedule against HMAC and AES-ECB, and the algebra of masks."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from study_protocol.secure_sum import masking, transcript
from study_protocol.secure_sum.masking import KeyAgreement, MaskingError

H1 = bytes(range(32))
A, B = hashlib.sha256(b"a").digest(), hashlib.sha256(b"b").digest()


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def test_x25519_rfc7748_section_6_1() -> None:
    alice = unhex("77076d0a7318a57d3c16c17251b26645 df4c2f87ebc0992ab177fba51db92c2a")
    bob = unhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert masking.public_key(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert masking.public_key(bob).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = X25519PrivateKey.from_private_bytes(alice).exchange(
        X25519PublicKey.from_public_bytes(masking.public_key(bob))
    )
    assert shared.hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_hkdf_rfc5869_case_1() -> None:
    ikm, salt, info = b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA))
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert HKDF(SHA256(), 42, salt, info).derive(ikm).hex() == expected


def hkdf_by_hmac(secret: bytes, salt: bytes, info: bytes) -> bytes:
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def test_keys_follow_the_schedule() -> None:
    shared = X25519PrivateKey.from_private_bytes(A).exchange(X25519PublicKey.from_public_bytes(masking.public_key(B)))
    mine, theirs = KeyAgreement("alice", A, H1), KeyAgreement("bob", B, H1)
    expected = hkdf_by_hmac(shared, H1, b"mask|alice|bob|update")
    assert mine.mask_key("bob", masking.public_key(B), "update") == expected
    assert theirs.mask_key("alice", masking.public_key(A), "update") == expected
    expected = hkdf_by_hmac(shared, H1, b"share|alice|bob")
    assert mine.share_key("bob", masking.public_key(B)) == expected
    assert theirs.share_key("alice", masking.public_key(A)) == expected
    assert masking.self_mask_key(A, H1, "terms") == hkdf_by_hmac(A, H1, b"self|terms")


def test_aes256_ctr_sp800_38a_f_5_5() -> None:
    key = unhex("603deb1015ca71be2b73aef0857d7781 1f352c073b6108d72d9810a30914dff4")
    counter = unhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = unhex("6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51")
    cipher = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    assert cipher.update(plain) == unhex("601ec313775789a5b7a7f504bbf3d228 f443e3ca4d62b59aca84e990cacaf5c5")


def test_ed25519_rfc8032_test_2() -> None:
    key = Ed25519PrivateKey.from_private_bytes(
        unhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    )
    assert key.public_key().public_bytes_raw() == unhex(
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    )
    signature = unhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert transcript.sign(key, b"\x72") == signature
    assert transcript.is_signed(key.public_key(), signature, b"\x72")
    assert not transcript.is_signed(key.public_key(), signature, b"\x73")
    assert not transcript.is_signed(key.public_key(), signature[:63], b"\x72")


def test_the_mask_is_the_aes_of_a_counter_from_two_on() -> None:
    ecb = Cipher(algorithms.AES(A), modes.ECB()).encryptor()
    stream = b"".join(ecb.update(counter.to_bytes(16, "big")) for counter in range(2, 7))
    for dtype in ("<u4", "<u8"):
        words = np.zeros(80 // np.dtype(dtype).itemsize, dtype)
        masking.apply_masks(words, add=[A])
        assert words.tobytes() == stream


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["<u4", "<u8"]),
    st.sampled_from([0, 1, 3, 65_535, 65_536, 65_537, 200_003]),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_masks_are_sums_of_keystreams_across_chunks(dtype, size, adds, subtracts) -> None:
    keys = [hashlib.sha256(bytes([i])).digest() for i in range(adds + subtracts)]
    words = np.arange(size, dtype=dtype)
    expected = words.copy()
    for index, key in enumerate(keys):
        raw = Cipher(algorithms.AES(key), modes.CTR((2).to_bytes(16, "big"))).encryptor().update(bytes(words.nbytes))
        stream = np.frombuffer(raw, dtype)
        expected = expected + stream if index < adds else expected - stream
    masking.apply_masks(words, add=keys[:adds], subtract=keys[adds:])
    assert np.array_equal(words, expected)


@pytest.mark.parametrize("size", [0, 5, 40_000, 70_000])
def test_a_head_is_copied_before_it_is_masked(size) -> None:
    head = np.arange(size, dtype="<u4")
    words, expected = np.full(70_000, 7, "<u4"), np.full(70_000, 7, "<u4")
    expected[:size] = head
    masking.apply_masks(words, add=[A], subtract=[B], head=head)
    masking.apply_masks(expected, add=[A], subtract=[B])
    assert np.array_equal(words, expected)
    for bad in (np.zeros(70_001, "<u4"), np.zeros(5, "<u8"), np.zeros((1, 5), "<u4")):
        with pytest.raises(MaskingError, match="head"):
            masking.apply_masks(words, add=[A], head=bad)


def test_a_share_opens_only_for_its_pair_direction_and_cohort() -> None:
    sealed = masking.seal_share(A, H1, "alice", "bob", b"x" * 72)
    assert len(sealed) == 88
    assert masking.open_share(A, H1, "alice", "bob", sealed) == b"x" * 72
    flipped = bytes([sealed[0] ^ 1]) + sealed[1:]
    for key, h1, sender, recipient, data in (
        (B, H1, "alice", "bob", sealed),
        (A, bytes(32), "alice", "bob", sealed),
        (A, H1, "bob", "alice", sealed),
        (A, H1, "alice", "carol", sealed),
        (A, H1, "alice", "bob", flipped),
        (A, H1, "alice", "bob", sealed[:-1]),
    ):
        with pytest.raises(MaskingError, match="does not open"):
            masking.open_share(key, h1, sender, recipient, data)


def test_both_directions_use_different_nonces() -> None:
    there = masking.seal_share(A, H1, "alice", "bob", bytes(72))
    back = masking.seal_share(A, H1, "bob", "alice", bytes(72))
    assert there[:72] != back[:72]


def test_unusable_keys_are_refused() -> None:
    mine = KeyAgreement("alice", A, H1)
    # A point of small order would make the shared secret zero (RFC 7748, section 6.1).
    with pytest.raises(MaskingError, match="public key of bob"):
        mine.mask_key("bob", bytes(32), "update")
    with pytest.raises(MaskingError, match="itself"):
        mine.mask_key("alice", masking.public_key(A), "update")
    for name in ("up|date", ""):
        with pytest.raises(MaskingError, match="names"):
            mine.mask_key("bob", masking.public_key(B), name)


def test_a_key_masks_once() -> None:
    words = np.zeros(4, "<u4")
    for add, subtract in (([A, A], []), ([A], [A]), ([], [B, B])):
        with pytest.raises(MaskingError, match="once"):
            masking.apply_masks(words, add=add, subtract=subtract)
    assert not words.any()


def test_only_contiguous_words_are_masked() -> None:
    for words in (np.zeros(4, "<u2"), np.zeros((2, 2), "<u4"), np.zeros(8, "<u4")[::2], np.zeros(4, ">u4")):
        with pytest.raises(MaskingError, match="words"):
            masking.apply_masks(words, add=[A])
    frozen = np.zeros(4, "<u4")
    frozen.flags.writeable = False
    with pytest.raises(MaskingError, match="words"):
        masking.apply_masks(frozen, add=[A])
    with pytest.raises(MaskingError, match="32 bytes"):
        masking.apply_masks(np.zeros(4, "<u4"), add=[A[:16]])
