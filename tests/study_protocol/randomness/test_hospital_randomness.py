"""Keys of a hospital's draws: out of fresh bytes, a stored secret and what is drawn for, each of which is enough."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from typing import Any

import pytest

from client_sdk.identity import Identity
from study_protocol.files.private import exposure
from study_protocol.randomness.source import HospitalRandomness, Purpose, SeededRandomness
from tests.harness.windows.system import let_others_in

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
CONTEXT = ("sepsis", "2", "head", "session", "model", "own head", "records")
ADDRESS: dict[str, Any] = {"party": "mercy", "round_number": 2, "step": 1, "subject": b"vector"}


@pytest.fixture
def repeating(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operating system that gives the same bytes for ever, as after a snapshot of the memory."""
    monkeypatch.setattr(os, "urandom", lambda size: b"\x07" * size)


def drawn(secret: bytes = SECRET, context: tuple[str, ...] = CONTEXT, **changes: Any) -> bytes:
    randomness = HospitalRandomness(secret)
    randomness.bind(*context)
    return randomness.of(**({"purpose": Purpose.NOISE} | ADDRESS | changes)).read(64)


@pytest.mark.usefixtures("repeating")
def test_only_the_very_same_draw_repeats_where_the_system_repeats_its_bytes() -> None:
    assert drawn() == drawn()
    others = [drawn(OTHER), drawn(context=()), drawn(purpose=Purpose.SAMPLE)]
    others += [drawn(context=(*CONTEXT[:place], "another", *CONTEXT[place + 1 :])) for place in range(len(CONTEXT))]
    # No two lists of parts are written alike.
    others += [drawn(context=("sepsis2", *CONTEXT[2:])), drawn(context=('sepsis", "2', *CONTEXT[2:]))]
    changes: list[dict[str, Any]] = [{"party": "m"}, {"round_number": 3}, {"step": 2}, {"subject": b"v"}]
    others += [drawn(**change) for change in changes]
    assert len({drawn(), *others}) == 1 + len(others)


def test_the_same_draw_is_another_one_with_fresh_bytes() -> None:
    assert len({drawn() for _ in range(100)}) == 100


@pytest.mark.usefixtures("repeating")
def test_secrets_of_sessions_depend_on_what_they_are_for() -> None:
    randomness = HospitalRandomness(SECRET)
    fresh = b"\x07" * 32
    calls = [(fresh, "seed", b"h1"), (fresh, "seed", b"h2"), (fresh, "mask-key", b"h1"), (b"\x08" * 32, "seed", b"h1")]
    unbound = [randomness.derived(*call) for call in calls]
    randomness.bind("sepsis")
    assert len({*unbound, *(randomness.derived(*call) for call in calls), fresh}) == 9
    # Beside seeded streams too nobody can reproduce a secret.
    assert SeededRandomness(1, allow_insecure=True).derived(fresh, "seed", b"h1") == fresh


@pytest.mark.usefixtures("repeating")
def test_the_key_is_that_of_rfc_5869() -> None:
    randomness = HospitalRandomness(SECRET)
    randomness.bind("a", "b")
    info = json.dumps(["wardround/1/draw", "a", "b", "seed", b"h1".hex()]).encode()
    key = hmac.digest(SECRET, b"\x07" * 32, hashlib.sha256)
    expected = hmac.digest(key, info + b"\x01", hashlib.sha256)
    assert randomness.derived(b"\x07" * 32, "seed", b"h1") == expected


@pytest.mark.usefixtures("repeating")
def test_a_forked_process_repeats_nothing_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    randomness = HospitalRandomness(SECRET)
    source = randomness.of(Purpose.NOISE, party="mercy", round_number=1)
    first = source.read(32)
    monkeypatch.setattr(os, "getpid", lambda: 999_999)
    assert source.read(32) not in (first, randomness.of(Purpose.NOISE, party="mercy", round_number=1).read(64)[32:])


@pytest.mark.usefixtures("repeating")
def test_a_stream_read_in_a_thread_has_the_context_of_its_asking() -> None:
    randomness, read = HospitalRandomness(SECRET), list[bytes]()
    randomness.bind(*CONTEXT)
    source = randomness.of(Purpose.NOISE, **ADDRESS)
    randomness.bind("a later round")
    thread = threading.Thread(target=lambda: read.append(source.read(64)))
    thread.start()
    thread.join()
    assert read == [drawn()]


def test_a_hospital_without_a_stored_secret_gets_one_and_keeps_it(tmp_path: Any) -> None:
    identity = Identity.create(tmp_path / "home")
    secret, path = identity.draw_secret(), tmp_path / "home" / "draws.key"
    assert (len(secret), exposure(path)) == (32, None)
    assert Identity.open(tmp_path / "home").draw_secret() == secret
    # Nothing needs the old one: what is damaged, or was open to others, is replaced.
    path.write_bytes(secret[:31])
    replaced = identity.draw_secret()
    let_others_in(path)
    assert len({secret, replaced, identity.draw_secret()}) == 3
