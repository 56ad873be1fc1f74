from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from server.signing_key import FILE_NAME, SigningKeyUnusable, create_signing_key, load_signing_key
from study_protocol.wire.signing import LEDGER_HEAD, decode_public_key, fingerprint, verify_document


def test_a_key_is_made_once_and_read_by_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert create_signing_key(home)
    first = load_signing_key(home)
    assert not create_signing_key(home)
    assert load_signing_key(home).public_key == first.public_key
    assert stat.S_IMODE((home / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [FILE_NAME]


def test_the_name_of_a_new_key_is_on_the_disk_when_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, bool]] = []

    def synced(descriptor: int) -> None:
        found = os.fstat(descriptor)
        done.append(("folder" if stat.S_ISDIR(found.st_mode) else "file", (tmp_path / FILE_NAME).exists()))

    monkeypatch.setattr(os, "fsync", synced)
    assert create_signing_key(tmp_path)
    assert done == [("file", False), ("folder", True)]


def test_many_processes_that_start_at_once_get_one_key(tmp_path: Path) -> None:
    made: list[bool] = []
    threads = [threading.Thread(target=lambda: made.append(create_signing_key(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]
    load_signing_key(tmp_path)


def test_what_it_signs_verifies_under_its_public_key(tmp_path: Path) -> None:
    create_signing_key(tmp_path)
    key = load_signing_key(tmp_path)
    public = decode_public_key(key.public_key)
    verify_document(public, LEDGER_HEAD, {"entries": 1}, key.sign(LEDGER_HEAD, {"entries": 1}))
    assert key.fingerprint == fingerprint(public)
    assert key.fingerprint not in repr(key)


def test_a_key_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    with pytest.raises(SigningKeyUnusable, match="migrate"):
        load_signing_key(tmp_path)
    create_signing_key(tmp_path)
    path = tmp_path / FILE_NAME
    path.chmod(0o640)
    with pytest.raises(SigningKeyUnusable, match="0600"):
        load_signing_key(tmp_path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(SigningKeyUnusable, match="backup"):
        load_signing_key(tmp_path)
