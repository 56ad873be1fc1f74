"""Finished bytes are the same as often as they are asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from client_sdk.errors import LedgerDamaged
from client_sdk.outbox import Outbox
from study_protocol.files.private import exposure


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_bytes_are_given_as_often_as_asked_and_to_nobody_else(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "sepsis")
    outbox.put(3, b"update")
    assert [outbox.take(3, digest(b"update")) for _ in range(2)] == [b"update"] * 2
    assert exposure(tmp_path / "sepsis") is None
    assert [exposure(path) for path in (tmp_path / "sepsis").iterdir()] == [None]


@pytest.mark.parametrize("sha256", [digest(b"another"), None])
def test_bytes_that_the_ledger_does_not_know_are_not_sent(tmp_path: Path, sha256: str | None) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(1, b"update")
    with pytest.raises(LedgerDamaged, match="round 1"):
        outbox.take(1, sha256)
    with pytest.raises(LedgerDamaged, match="round 2"):
        outbox.take(2, digest(b"update"))


def test_only_finished_updates_of_earlier_rounds_are_scrubbed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for round in (1, 2, 10):
        outbox.put(round, b"update")
    (tmp_path / "checkpoint").write_bytes(b"steps")
    outbox.forget_before(10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10.safetensors", "checkpoint"]
    Outbox(tmp_path / "not there yet").forget_before(2)
