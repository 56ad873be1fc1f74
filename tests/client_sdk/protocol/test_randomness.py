"""The stream is AES-256-CTR, never repeated by a fork, and the seeded one announces itself."""

from __future__ import annotations

import logging
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from client_sdk.protocol.randomness import InsecureSource, SecureSource, SeededSource


def test_words_are_the_keystream_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    key = bytes(range(32))
    monkeypatch.setattr(os, "urandom", lambda count: key[:count])
    source = SecureSource()
    found = b"".join(source.words(n, np.uint8).tobytes() for n in (3, 0, 70_000, 1))
    keystream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(70_004))
    assert found == keystream


def test_each_source_has_its_own_key() -> None:
    one, other = SecureSource(), SecureSource()
    assert one.secure
    assert one.words(4, np.uint64).tolist() != other.words(4, np.uint64).tolist()


def test_a_forked_child_does_not_repeat_its_parent() -> None:
    source = SecureSource()
    source.words(1, np.uint64)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.words(4, np.uint64).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32), np.uint64)
    assert source.words(4, np.uint64).tolist() != theirs.tolist()


def test_seeded_source_must_be_allowed_and_announces_itself(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InsecureSource, match="allow_insecure"):
        SeededSource(1)
    with caplog.at_level(logging.WARNING):
        source = SeededSource(1, allow_insecure=True)
    assert "protect nobody" in caplog.text
    assert not source.secure
    again = SeededSource(1, allow_insecure=True).words(8, np.uint32).tolist()
    assert source.words(8, np.uint32).tolist() == again
    assert SeededSource(2, allow_insecure=True).words(8, np.uint32).tolist() != again


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="count"):
        SecureSource().words(-1, np.uint8)
