"""The keystream against published vectors and against plain counter mode."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from study_protocol.secure_sum.masking import keystream

A = hashlib.sha256(b"a").digest()


def test_the_keystream_is_that_of_gcm_test_case_13_and_14() -> None:
    # McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B: zero key, zero nonce, zero plaintext.
    assert keystream(bytes(32)).update(bytes(16)).hex() == "cea7403d4d606b6e074ec5d3baf39d18"


def test_the_keystream_is_counter_mode_from_two_on() -> None:
    plain = Cipher(algorithms.AES(A), modes.CTR((2).to_bytes(16, "big"))).encryptor().update(bytes(5_000_003))
    assert keystream(A).update(bytes(5_000_003)) == plain


def test_a_stream_goes_on_where_it_was() -> None:
    stream, whole = keystream(A), keystream(A).update(bytes(1000))
    assert stream.update(bytes(7)) + stream.update(bytes(993)) == whole


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        keystream(bytes(size))
