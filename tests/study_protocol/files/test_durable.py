"""A file is the old one or the new one, at every failure."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from study_protocol.files.durable import write_durably


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


def test_nothing_half_written_stays_where_somebody_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_durably(tmp_path / "predictions.csv", b"of patients")
    assert list(tmp_path.iterdir()) == []
