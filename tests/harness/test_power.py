"""A power cut leaves what was synced and nothing else, so that a forgotten sync is found."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from client_sdk.outbox import Outbox
from study_protocol.files import durable
from study_protocol.files.durable import write_durably
from tests.harness.power import WatchedDisk, watched


class Strict(random.Random):
    """Nothing that was not synced happens to be there."""

    def random(self) -> float:
        return 0.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[WatchedDisk]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "old").write_bytes(b"from before")
    disk = WatchedDisk(folder)
    with watched(disk):
        yield disk


@pytest.mark.parametrize("source", [Strict(0), *(random.Random(seed) for seed in range(20))])
def test_what_was_written_durably_is_there(disk: WatchedDisk, source: random.Random) -> None:
    path = disk.root / "record.json"
    for number in range(3):
        write_durably(path, b"version %d" % number)
    Outbox(disk.root / "outbox").put(1, b"finished")
    write_durably(disk.root / "old", b"new")
    disk.cut(source)
    assert (path.read_bytes(), (disk.root / "old").read_bytes()) == (b"version 2", b"new")
    assert (disk.root / "outbox" / "1.safetensors").read_bytes() == b"finished"


def test_what_was_not_synced_vanishes(disk: WatchedDisk) -> None:
    (disk.root / "plain").write_bytes(b"only in the system's memory")
    os.replace(disk.root / "plain", disk.root / "old")
    disk.cut(Strict(0))
    assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == {"old": b"from before"}
    assert disk.counts["names lost"] == 1


def test_a_removal_that_was_not_synced_is_undone(disk: WatchedDisk) -> None:
    (disk.root / "old").unlink()
    disk.cut(Strict(0))
    assert (disk.root / "old").read_bytes() == b"from before"


def test_a_file_is_torn_where_its_folder_alone_was_synced(disk: WatchedDisk) -> None:
    (disk.root / "torn").write_bytes(b"0123456789")
    durable.sync_directory(disk.root)
    disk.cut(Strict(0))
    assert (disk.root / "torn").read_bytes() == b""
    lengths = set[int]()
    for seed in range(30):
        (disk.root / "torn").write_bytes(b"0123456789")
        durable.sync_directory(disk.root)
        disk.cut(random.Random(seed))
        lengths.add((disk.root / "torn").stat().st_size)
    assert lengths - {0, 10}


@pytest.mark.parametrize(("level", "rows"), [("FULL", 2), ("NORMAL", 1)])
def test_a_database_that_does_not_sync_its_commits_loses_them(disk: WatchedDisk, level: str, rows: int) -> None:
    path = disk.root / "ledger.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE entries (number INTEGER)")
        connection.execute("INSERT INTO entries VALUES (1)")
    disk.start()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA synchronous = {level}")
    for statement in ("BEGIN IMMEDIATE", "INSERT INTO entries VALUES (2)", "COMMIT"):
        connection.execute(statement)
    connection.close()
    disk.cut(random.Random(0))
    with closing(sqlite3.connect(path)) as second_connection:
        assert second_connection.execute("SELECT count(*) FROM entries").fetchone() == (rows,)


def test_a_full_disk_refuses_to_sync(tmp_path: Path) -> None:
    disk = WatchedDisk(tmp_path / "home", fails=lambda: True)
    with watched(disk), pytest.raises(OSError, match="No space left"):
        write_durably(disk.root / "record.json", b"too much")
    assert list(disk.root.iterdir()) == []


def test_outside_the_folder_and_afterwards_nothing_is_watched(tmp_path: Path, disk: WatchedDisk) -> None:
    (tmp_path / "elsewhere").write_bytes(b"kept")
    disk.cut(Strict(0))
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"
