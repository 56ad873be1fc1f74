"""The file store: modes, one holder, replacement."""

from __future__ import annotations

import os
import shutil
import stat

import pytest

from client_sdk.secure_sum.refusals import StateRefused
from client_sdk.secure_sum.store import FileStore, RoundRecord
from study_protocol.files.private import exposure


def test_records_survive_in_files_that_only_their_owner_reads(tmp_path) -> None:
    store = FileStore(tmp_path / "state")
    assert store.load("sepsis", 3) is None
    store.save("sepsis", 3, b"first")
    store.save("sepsis", 3, b"second")
    store.save("sepsis", 4, b"other")
    store.close()
    again = FileStore(tmp_path / "state")
    assert (again.load("sepsis", 3), again.load("sepsis", 4)) == (b"second", b"other")
    again.close()
    assert {exposure(path) for path in (tmp_path / "state").iterdir()} == {None}
    assert exposure(tmp_path / "state") is None


def test_a_second_process_is_refused(tmp_path) -> None:
    store = FileStore(tmp_path)
    with pytest.raises(StateRefused) as refused:
        FileStore(tmp_path)
    assert refused.value.code == "state-in-use"
    store.close()
    FileStore(tmp_path).close()


def moved(directory) -> bool:
    store = FileStore(directory)
    store.close()
    return store.moved


def test_files_that_were_copied_or_put_back_are_known_until_somebody_settles(tmp_path) -> None:
    here, copy = tmp_path / "state", tmp_path / "copy"
    store = FileStore(here)
    assert not store.moved, "nothing was ever here"
    store.save("sepsis", 3, b"first")
    store.save("sepsis", 11, b"other")
    store.close()
    shutil.copytree(here, copy)
    assert (moved(here), moved(copy)) == (False, True), "a restart in place is none"
    shutil.copytree(copy, here, dirs_exist_ok=True)
    assert moved(here), "put back over the files"
    shutil.rmtree(here)
    shutil.copytree(copy, here)
    assert moved(here)
    (here / "lock").unlink()
    assert moved(here), "only the records were put back"
    again = FileStore(here)
    assert again.rounds("sepsis") == [3, 11]
    again.settle()
    assert not again.moved
    again.close()
    assert not moved(here)


@pytest.mark.posix
def test_bytes_are_synced_before_they_replace_the_old(tmp_path, monkeypatch) -> None:
    store = FileStore(tmp_path)
    store.save("sepsis", 1, b"old")
    order: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        order.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_sync(descriptor)

    def replace(source: object, target: object) -> None:
        order.append("replace")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    store.save("sepsis", 1, b"new")
    assert order == ["file", "replace", "directory"]
    store.close()


def test_an_interrupted_write_leaves_the_old_record(tmp_path, monkeypatch) -> None:
    store = FileStore(tmp_path)
    store.save("sepsis", 1, b"old")

    def no_space(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="no space"):
        store.save("sepsis", 1, b"new")
    assert store.load("sepsis", 1) == b"old"
    store.close()


def test_a_record_round_trips_and_a_damaged_one_is_named() -> None:
    record = RoundRecord(study="sepsis", round=2, sessions=(b"s" * 32,), words={"terms": b"d" * 32}, released=True)
    assert RoundRecord.from_bytes(record.to_bytes()) == record
    with pytest.raises(StateRefused, match="damaged"):
        RoundRecord.from_bytes(b"not json")
