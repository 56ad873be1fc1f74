from __future__ import annotations

import hashlib
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from server.db.blobs import Place
from server.db.file_blobs import FileBlobs
from server.domain.errors import Rejected

MODELS = Place("models/a", "model")


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


def incoming(blobs: FileBlobs) -> list[Path]:
    return list((blobs.root / ".incoming").iterdir())


def test_a_file_has_its_hash_for_a_name(blobs: FileBlobs) -> None:
    body = os.urandom(100_000)
    with blobs.receive(len(body)) as file:
        for start in range(0, len(body), 7777):
            file.write(memoryview(body)[start : start + 7777])
        kept = blobs.keep(file, MODELS)
    digest = hashlib.sha256(body).hexdigest()
    assert (kept.sha256, kept.bytes) == (digest, len(body))
    assert (blobs.root / "models/a" / f"model.{digest}").read_bytes() == body
    assert incoming(blobs) == []


def test_a_body_that_is_not_kept_leaves_nothing(blobs: FileBlobs) -> None:
    def fail() -> None:
        with blobs.receive(10) as file:
            file.write(b"12345")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    assert incoming(blobs) == []


def test_a_folder_of_bodies_that_was_deleted_is_made_again_and_a_disk_that_is_gone_is_not(blobs: FileBlobs) -> None:
    shutil.rmtree(blobs.root / ".incoming")
    assert blobs.sweep(0.0) == 0
    blobs.check()
    assert incoming(blobs) == []
    # As where a disk is not mounted: what were written there would be hidden by it later.
    shutil.rmtree(blobs.root)
    with pytest.raises(FileNotFoundError):
        blobs.check()
    assert not blobs.root.exists()


def test_not_a_byte_more_than_allowed_reaches_the_disk(blobs: FileBlobs) -> None:
    with blobs.receive(10) as file:
        file.write(b"12345")
        with pytest.raises(Rejected, match="body-too-large"):
            file.write(b"678901")
        assert file.path.stat().st_size == 5
        file.write(b"67890")
        assert file.bytes == 10


def test_keeping_the_same_bytes_twice_is_keeping_them_once(blobs: FileBlobs) -> None:
    first, second = blobs.write(MODELS, b"same"), blobs.write(MODELS, b"same")
    assert first == second
    assert [path.name for path in (blobs.root / "models/a").iterdir()] == [f"model.{first.sha256}"]


@pytest.mark.slow
def test_two_workers_may_clear_one_scope_at_once(blobs: FileBlobs) -> None:
    for round in range(5):
        for client in range(40):
            blobs.write(Place(f"rounds/a/{round}", f"update.h{client}"), b"update")
        failures: list[BaseException] = []

        def clear(scope: str = f"rounds/a/{round}", failures: list[BaseException] = failures) -> None:
            try:
                blobs.clear(scope)
            except OSError as error:
                failures.append(error)

        threads = [threading.Thread(target=clear) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
    assert blobs.folders("rounds/a") == []


def test_the_file_is_on_the_disk_before_it_has_its_name(blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def traced_fsync(descriptor: int) -> None:
        order.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def traced_rename(path: Path, target: Any) -> Path:
        order.append("rename")
        return rename(path, target)

    blobs.write(MODELS, b"first")
    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "rename", traced_rename)
    blobs.write(MODELS, b"second")
    assert order == ["file", "rename", "folder"]


def test_who_waits_for_one_folder_shares_a_sync_that_began_later(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thread is held inside its sync; whoever comes meanwhile needs one more, all of them together."""
    blobs.write(MODELS, b"the folder is there")
    held, begun, folders, fsync = threading.Event(), threading.Event(), list[str](), os.fsync

    def slow(descriptor: int) -> None:
        place = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(place):
            folders.append(place)
            begun.set()
            assert held.wait(30)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    threads = [threading.Thread(target=blobs.write, args=(MODELS, bytes([number]))) for number in range(6)]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    folder = blobs.root / "models/a"
    # All have their names: what is left of each is the sync.
    while blobs._syncs._folders[folder].created < len(threads):
        threading.Event().wait(0.001)
    held.set()
    for thread in threads:
        thread.join()
    assert len(folders) == 2
    assert blobs._syncs._folders == {}


def test_what_killed_processes_left_is_swept_when_it_is_old(blobs: FileBlobs) -> None:
    for name, age in (("old", 5000.0), ("new", 10.0)):
        path = blobs.root / ".incoming" / name
        path.write_bytes(b"x")
        stat = path.stat()
        os.utime(path, (stat.st_atime - age, stat.st_mtime - age))
    assert blobs.sweep(3600.0) == 1
    assert [path.name for path in incoming(blobs)] == ["new"]


def test_a_full_disk_is_an_error_of_the_system(blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with blobs.receive(10) as file, Path("/dev/full").open("wb", buffering=0) as full:
        file._file.close()
        file._file = full
        with pytest.raises(OSError, match="No space left"):
            file.write(b"123")
