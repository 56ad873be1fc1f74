"""A file is the old one or the new one, whatever fails; finished bytes are the same as often as asked."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from client_sdk.errors import LedgerDamaged
from client_sdk.outbox import Outbox
from private_learning.durable import write_durably


def test_a_file_is_replaced_whole_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_durably(path, b"one, and longer")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_durably(tmp_path / "open", b"", mode=0o640)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "open"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_after_a_failure_the_old_file_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "a"
    write_durably(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space"):
        write_durably(path, b"new")
    monkeypatch.undo()
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_bytes_are_synced_before_the_rename_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(old: Path, new: Path) -> None:
        done.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_durably(tmp_path / "a", b"x")
    assert done == ["file", "rename", "folder"]


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_bytes_are_given_as_often_as_asked_and_to_nobody_else(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "sepsis")
    outbox.put(3, b"update")
    assert [outbox.take(3, digest(b"update")) for _ in range(2)] == [b"update"] * 2
    assert stat.S_IMODE((tmp_path / "sepsis").stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "sepsis").iterdir()] == [0o600]


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


def test_nothing_half_written_stays_where_somebody_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_durably(tmp_path / "predictions.csv", b"of patients")
    assert list(tmp_path.iterdir()) == []
