"""Blobs in folders of this machine, or of a disk that all coordinators share."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from server.db.blobs import Blob, Comparison, IncomingFile, OpenedFile, Place, logger

_INCOMING = ".incoming"


class FileBlobs:
    """Files under `root`: `server.db.blobs.Blobs`.

    disposable  the folder only holds copies, so a deleted folder is made again. Otherwise a folder that is gone is a
                disk
                that is not mounted, and no file may be written to another disk in its place
    """

    def __init__(self, root: Path, *, disposable: bool = False) -> None:
        self.root, self._disposable = root, disposable
        self._incoming = root / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._compared, self._syncs = Comparison(), _FolderSyncs()

    @contextmanager
    def receive(self, limit: int) -> Generator[IncomingFile]:
        path = self._incoming / os.urandom(16).hex()
        try:
            incoming = IncomingFile(path, limit)
        except FileNotFoundError:
            self._incoming.mkdir(parents=self._disposable, exist_ok=True, mode=0o700)
            incoming = IncomingFile(path, limit)
        try:
            yield incoming
        finally:
            incoming.close()
            incoming.path.unlink(missing_ok=True)

    def keep(self, incoming: IncomingFile, place: Place) -> Blob:
        # The content before the name: after a power cut no name may stand for a file that is empty.
        incoming.sync()
        self._make(self.root / place.folder)
        self.move(incoming, place)
        self._syncs.sync(self.root / place.folder)
        return Blob(incoming.sha256, incoming.bytes)

    def move(self, incoming: IncomingFile, place: Place) -> None:
        """Give the file its name, without making it durable."""
        self._compared.note(incoming.descriptor, incoming.sha256)
        folder = self.root / place.folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A file of this name has the same bytes, so replacing it makes no difference.
        incoming.path.rename(folder / place.name(incoming.sha256))

    def write(self, place: Place, data: bytes) -> Blob:
        with self.receive(len(data)) as incoming:
            incoming.write(data)
            return self.keep(incoming, place)

    def open(self, place: Place, sha256: str) -> OpenedFile | None:
        try:
            opened = OpenedFile(self.root / place.key(sha256))
        except FileNotFoundError:
            return None
        try:
            if self._compared.holds(opened.descriptor, sha256):
                return opened
        except BaseException:
            opened.close()
            raise
        opened.close()
        logger.error("a file is not what its name says: it is not used", extra={"event": place.log_name(sha256)})
        return None

    def has(self, place: Place, sha256: str) -> bool:
        return (self.root / place.key(sha256)).is_file()

    def hashes(self, place: Place) -> list[str]:
        folder, beginning = self.root / place.folder, f"{place.kind}."
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return [name.removeprefix(beginning) for name in names if name.startswith(beginning)]

    def remove(self, place: Place, sha256: str) -> None:
        (self.root / place.key(sha256)).unlink(missing_ok=True)

    def clear(self, folder: str) -> None:
        path = self.root / folder
        while path.is_dir():
            # Another worker may be clearing it too.
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
                _sync(path.parent)

    def folders(self, under: str) -> list[str]:
        path = self.root / under
        return sorted(f"{under}/{entry.name}" for entry in path.iterdir()) if path.is_dir() else []

    def sweep(self, older_than_seconds: float) -> int:
        removed, limit = 0, time.time() - older_than_seconds
        for path in self._incoming.iterdir() if self._incoming.is_dir() else ():
            with suppress(FileNotFoundError):
                # The time of the last write: an upload under way is young, however long it takes.
                if path.stat().st_mtime < limit:
                    path.unlink()
                    removed += 1
        return removed

    def check(self) -> None:
        with self.receive(1) as probe:
            probe.write(b"\0")

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        # One level at a time, because each new name must be synced in its own parent.
        self._make(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        _sync(folder.parent)


@dataclass
class _Folder:
    """Names that were made in it, and up to which of them it is on the disk."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    created: int = 0
    synced: int = 0
    waiting: int = 0


class _FolderSyncs:
    """Several threads that wait for one folder share a sync that began after the last of their names was made."""

    def __init__(self) -> None:
        self._folders: dict[Path, _Folder] = {}
        self._lock = threading.Lock()

    def sync(self, folder: Path) -> None:
        with self._lock:
            state = self._folders.setdefault(folder, _Folder())
            state.created += 1
            state.waiting += 1
            mine = state.created
        try:
            with state.lock:
                if state.synced < mine:
                    upto = state.created
                    _sync(folder)
                    state.synced = upto
        finally:
            with self._lock:
                state.waiting -= 1
                if not state.waiting:
                    del self._folders[folder]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
