"""A power cut for programs that run on: what they wrote and did not sync vanishes, is torn, or happens to be there.

Python's own calls are watched (fsync, rename, replace, unlink), and every statement of SQLite. SQLite itself syncs at
every commit at `synchronous` FULL or EXTRA, which leaves nothing to lose. A connection at a lower level loses all that
it committed since it was opened, which is the worst that can happen between two checkpoints.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
import stat
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_SQLITE = (".db", ".db-wal", ".db-shm", ".db-journal")
_SYNCED_AT_COMMIT = {"2", "3", "full", "extra"}
_lock = threading.RLock()
_disks: list[WatchedDisk] = []


class WatchedDisk:
    """The folder `root`, and what of it a power cut would leave.

    fails   asked at every sync: whether the disk is full
    counts  what was lost at cuts, by kind
    """

    def __init__(self, root: Path, fails: Callable[[], bool] = lambda: False) -> None:
        self.fails = fails
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.counts: Counter[str] = Counter()
        # Beside it: on the same file system, for links, and seen by no program that lists the folder.
        sibling = self.root if os.path.ismount(self.root) else self.root.parent
        self._kept = sibling / f".{self.root.name}.kept"
        self._numbers = 0
        self.start()

    def start(self) -> None:
        """All that is there now is on the disk."""
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        self._contents: dict[int, tuple[int, int]] = {}
        self._names: dict[str, dict[str, int]] = {}
        self._old: dict[tuple[str, str], Path] = {}
        self._databases: dict[str, Path] = {}
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if Path(folder, name) != self._kept]
            self._note_names(folder)
            for name in files:
                self.note_content(os.stat(os.path.join(folder, name)))

    def holds(self, path: str) -> bool:
        return path == str(self.root) or path.startswith(f"{self.root}{os.sep}")

    def note_content(self, status: os.stat_result) -> None:
        """A file's content was synced."""
        self._contents[status.st_ino] = (status.st_size, status.st_mtime_ns)

    def note_folder(self, folder: str) -> None:
        """A folder's names were synced."""
        self._note_names(folder)
        for key in [key for key in self._old if key[0] == folder]:
            self._old.pop(key).unlink(missing_ok=True)

    def keep(self, path: str) -> None:
        """The name is about to be taken away from a file: it is the disk's until the folder is synced."""
        folder, name = os.path.split(path)
        if (folder, name) in self._old or name not in self._names.get(folder, {}):
            return
        self._numbers += 1
        copy = self._kept / str(self._numbers)
        with suppress(OSError):
            _ORIGINAL["link"](path, copy)
            self._old[folder, name] = copy
            return
        # It cannot be given back, so it counts as taken away for good.
        self._names[folder].pop(name)

    def begin(self, database: str) -> None:
        """A connection that does not sync at its commits begins to write."""
        if database in self._databases:
            return
        self._numbers += 1
        folder = self._kept / f"{self._numbers}.database"
        folder.mkdir()
        self._databases[database] = folder
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(database + suffix, folder / f"database{suffix}")

    def cut(self, source: random.Random) -> None:
        """Leave what a power cut leaves. The programs that wrote here have ended."""
        with _lock:
            # Strictest: nothing that was not synced is there. Else: any part of it, as the system happened to write.
            strict = source.random() < 0.5
            for folder, names in list(self._names.items()):
                self._take_back_names(folder, names, source, strict)
            for folder, folders, files in os.walk(self.root):
                folders[:] = [name for name in folders if Path(folder, name) != self._kept]
                for name in files:
                    self._tear(Path(folder, name), source, strict)
            for database, folder in self._databases.items():
                self.counts["commits lost"] += 1
                for suffix in ("", "-wal", "-shm"):
                    Path(database + suffix).unlink(missing_ok=True)
                for copy in folder.iterdir():
                    shutil.copyfile(copy, database + copy.name.removeprefix("database"))
            self.start()

    def _take_back_names(self, folder: str, names: dict[str, int], source: random.Random, strict: bool) -> None:
        if not os.path.isdir(folder):
            return
        present = _listed(folder)
        for name in sorted({*present, *names}):
            path, old = Path(folder, name), self._old.get((folder, name))
            if present.get(name) == names.get(name) or not (strict or source.random() < 0.5):
                continue
            if name.endswith(_SQLITE) or path.is_dir():
                continue
            path.unlink(missing_ok=True)
            self.counts["names lost"] += 1
            if old is not None:
                _ORIGINAL["link"](old, path)

    def _tear(self, path: Path, source: random.Random, strict: bool) -> None:
        status = path.lstat()
        synced = self._contents.get(status.st_ino) == (status.st_size, status.st_mtime_ns)
        if synced or path.name.endswith(_SQLITE) or not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return
        if strict or source.random() < 0.5:
            os.truncate(path, 0 if strict else source.randrange(status.st_size))
            self.counts["torn files"] += 1

    def _note_names(self, folder: str) -> None:
        self._names[folder] = _listed(folder)


def _listed(folder: str) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


_ORIGINAL: dict[str, Any] = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "unlink", "link")}
_connect = sqlite3.connect


def _disk_of(path: str) -> WatchedDisk | None:
    return next((disk for disk in _disks if disk.holds(path)), None)


def _fsync(descriptor: Any) -> None:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    path = os.readlink(f"/proc/self/fd/{number}")
    disk = _disk_of(path)
    if disk is not None and disk.fails():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _ORIGINAL["fsync"](number)
    with _lock:
        status = os.fstat(number)
        if disk is not None:
            if stat.S_ISDIR(status.st_mode):
                disk.note_folder(path)
            else:
                disk.note_content(status)


def _renaming(original: Any) -> Any:
    def rename(source: Any, target: Any, **options: Any) -> None:
        with _lock:
            for path in (source, target):
                _keep(path)
            original(source, target, **options)

    return rename


def _unlink(path: Any, *, dir_fd: int | None = None) -> None:
    with _lock:
        if dir_fd is None:
            _keep(path)
        _ORIGINAL["unlink"](path, dir_fd=dir_fd)


def _keep(path: Any) -> None:
    absolute = os.path.abspath(os.fspath(path))
    disk = _disk_of(absolute)
    if disk is not None:
        disk.keep(absolute)


def _connected(database: Any, *arguments: Any, **options: Any) -> Any:
    connection = _connect(database, *arguments, **options)
    path = next((row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"), "")
    disk = _disk_of(path)
    if disk is not None:
        connection.set_trace_callback(
            _statements(disk, path, str(connection.execute("PRAGMA synchronous").fetchone()[0]))
        )
    return connection


def _statements(disk: WatchedDisk, path: str, level: str) -> Any:
    synchronous = level

    def note_statement(statement: str) -> None:
        nonlocal synchronous
        words = statement.lower().replace("=", " ").split()
        if words[:2] == ["pragma", "synchronous"] and len(words) > 2:
            synchronous = words[2].rstrip(";")
        if words[:1] == ["begin"] and synchronous not in _SYNCED_AT_COMMIT:
            with _lock:
                disk.begin(path)

    return note_statement


@contextmanager
def watched(*disks: WatchedDisk) -> Generator[None]:
    """Watch these disks in this process, in addition to those that are."""
    with _lock:
        first = not _disks
        _disks.extend(disks)
        if first:
            os.fsync, os.unlink = _fsync, _unlink
            os.rename, os.replace = _renaming(_ORIGINAL["rename"]), _renaming(_ORIGINAL["replace"])
            sqlite3.connect = _connected
    try:
        yield
    finally:
        with _lock:
            for disk in disks:
                _disks.remove(disk)
                shutil.rmtree(disk._kept, ignore_errors=True)
            if not _disks:
                for name in ("fsync", "unlink", "rename", "replace"):
                    setattr(os, name, _ORIGINAL[name])
                sqlite3.connect = _connect
