"""Streams are AES-256-CTR, never repeated by a fork unless seeded; the seeded ones announce themselves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from study_protocol.randomness.source import (
    InsecureSource,
    Purpose,
    RandomSource,
    SecureRandomness,
    SecureSource,
    SeededRandomness,
    SeededSource,
)


def seeded(seed: int = 1) -> SeededRandomness:
    return SeededRandomness(seed, allow_insecure=True)


def in_a_fork(draw: Callable[[], bytes]) -> bytes:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, draw())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as reported:
        found = reported.read()
    os.waitpid(child, 0)
    return found


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


def at_some_address(randomness: SecureRandomness) -> RandomSource:
    return randomness.of(Purpose.NOISE, party="mercy", round_number=1, step=1)


@pytest.mark.parametrize("source", [SecureSource(), at_some_address(SecureRandomness())])
@pytest.mark.parametrize("begun", [0, 32])
def test_a_forked_child_does_not_repeat_its_parent(source: RandomSource, begun: int) -> None:
    source.read(begun)
    theirs = in_a_fork(lambda: source.read(32))
    assert len(theirs) == 32
    assert source.read(32) != theirs


def test_a_secure_address_never_repeats() -> None:
    randomness = SecureRandomness()
    assert randomness.secure
    drawn = {at_some_address(each).read(16) for each in (randomness, randomness, SecureRandomness())}
    drawn.add(in_a_fork(lambda: at_some_address(randomness).read(16)))
    assert len(drawn) == 4


def test_seeded_source_must_be_allowed_and_announces_itself(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InsecureSource, match="allow_insecure"):
        SeededSource(1)
    with caplog.at_level(logging.WARNING, "study_protocol.randomness.source"):
        source = SeededSource(1, allow_insecure=True)
    assert "do not protect anyone" in caplog.text
    assert not source.secure
    again = SeededSource(1, allow_insecure=True).words(8, np.uint32).tolist()
    assert source.words(8, np.uint32).tolist() == again
    assert SeededSource(2, allow_insecure=True).words(8, np.uint32).tolist() != again


def test_seeded_randomness_must_be_allowed_and_announces_itself_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InsecureSource, match="allow_insecure"):
        SeededRandomness(1)
    with caplog.at_level(logging.WARNING, "study_protocol.randomness.source"):
        randomness = seeded()
        source = randomness.of(Purpose.COINS, party="mercy", round_number=1)
    assert caplog.text.count("do not protect anyone") == 1
    assert not randomness.secure
    assert not source.secure


def test_different_addresses_have_different_streams() -> None:
    # Parties and numbers that would run into each other if they were only written one after the other.
    parties = ["mercy", "mercy 1", "mercy,1", 'mer"cy', "", "1", "ä"]
    addresses = list(product([1, 11], Purpose, parties, [0, 1, 11], [0, 1, 11]))
    drawn = {seeded(seed).of(p, party=party, round_number=r, step=s).read(16) for seed, p, party, r, s in addresses}
    assert len(drawn) == len(addresses)


def test_what_an_address_gives_depends_on_nothing_drawn_before() -> None:
    one, other = seeded(), seeded()
    for party in ("a", "b", "c"):
        one.of(Purpose.SAMPLE, party=party, round_number=1).read(1000)
    first = {party: one.of(Purpose.NOISE, party=party, round_number=2).read(64) for party in ("a", "b", "c")}
    assert {party: other.of(Purpose.NOISE, party=party, round_number=2).read(64) for party in ("c", "a", "b")} == first
    source = other.in_round("a", 2).of(Purpose.NOISE)
    assert source.read(10) + source.words(54, np.uint8).tobytes() == first["a"]


def test_two_processes_and_a_fork_give_the_same_seeded_bytes() -> None:
    address = 'of(Purpose.NOISE, party="mercy", round_number=3, step=2)'
    program = (
        "from study_protocol.randomness.source import Purpose, SeededRandomness\n"
        f"print(SeededRandomness(7, allow_insecure=True).{address}.read(100_000).hex()[-64:])"
    )
    command = [sys.executable, "-c", program]
    outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)]
    source = seeded(7).of(Purpose.NOISE, party="mercy", round_number=3, step=2)
    source.read(99_968)
    # Half-way through a stream too: the child goes on where its parent stood.
    theirs = in_a_fork(lambda: source.read(32))
    assert outputs == [theirs.hex()] * 2
    assert source.read(32) == theirs


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="count"):
        SecureSource().words(-1, np.uint8)
