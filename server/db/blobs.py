"""Content-addressed files: where they lie, written aside while they are hashed, durable before they have their name."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from server.domain.errors import Rejected

_INCOMING = ".incoming"


def models_scope(study: str) -> str:
    """Published models."""
    return f"models/{study}"


def optimisers_scope(study: str) -> str:
    """The server optimiser's state after a release."""
    return f"optimisers/{study}"


def round_scope(study: str, round: int) -> str:
    """Everything of one round that is scrubbed after it."""
    return f"rounds/{study}/{round}"


def update_scope(study: str, round: int, client: str) -> str:
    """One client's update. Apart from the others', whose bytes may be the same."""
    return f"{round_scope(study, round)}/updates/{client}"


def octets_scope(study: str, round: int, client: str) -> str:
    """One client's masked vectors."""
    return f"{round_scope(study, round)}/masked/{client}"


def sum_scope(study: str, round: int, vector: str) -> str:
    """The opened sum of one vector."""
    return f"{round_scope(study, round)}/sums/{vector}"


def noised_scope(study: str, round: int) -> str:
    """The sum of the updates with the coordinator's own noise."""
    return f"{round_scope(study, round)}/noised"


@dataclass(frozen=True)
class Blob:
    """A file kept under its own SHA-256 (hex)."""

    sha256: str
    bytes: int
    path: Path


class IncomingFile:
    """A body on its way to disk, hashed while it is written. Not durable before it is kept."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.bytes = 0
        self._limit = limit
        self._hash = hashlib.sha256()
        # Unbuffered: a failpoint or a full disk leaves exactly what was written.
        self._file = path.open("xb", buffering=0)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises Rejected `body-too-large` once the limit is passed, OSError when the disk is full."""
        if self.bytes + len(data) > self._limit:
            raise Rejected("body-too-large", f"at most {self._limit} bytes are taken here")
        rest = memoryview(data)
        self._hash.update(rest)
        while len(rest) > 0:
            written = self._file.write(rest)
            rest = rest[written or 0 :]
        self.bytes += len(data)

    def sync(self) -> None:
        """Durable up to here."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class FileBlobs:
    """Files under `root`, one folder per scope."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextmanager
    def receive(self, limit: int) -> Generator[IncomingFile]:
        """A temporary file for at most `limit` bytes; it is gone at the end unless it was kept."""
        incoming = IncomingFile(self._incoming / os.urandom(16).hex(), limit)
        try:
            yield incoming
        finally:
            incoming.close()
            incoming.path.unlink(missing_ok=True)

    def keep(self, incoming: IncomingFile, scope: str) -> Blob:
        """Give it its name: fsync the file, rename, fsync the folder."""
        # The content before the name: after a power cut no name may stand for a file that is empty.
        incoming.sync()
        folder = self._folder(scope)
        self._make(folder)
        target = folder / incoming.sha256
        # A file of this name has the same bytes: replacing it changes nothing.
        incoming.path.rename(target)
        _sync_folder(folder)
        return Blob(incoming.sha256, incoming.bytes, target)

    def write(self, scope: str, data: bytes) -> Blob:
        """Keep bytes that are in memory."""
        with self.receive(len(data)) as incoming:
            incoming.write(data)
            return self.keep(incoming, scope)

    def find(self, scope: str, sha256: str) -> Path | None:
        """Where it lies, None if it is gone."""
        path = self._folder(scope) / sha256
        return path if path.is_file() else None

    def kept(self, scope: str) -> list[str]:
        """The names of all files in the scope."""
        folder = self._folder(scope)
        return [path.name for path in folder.iterdir()] if folder.is_dir() else []

    def remove(self, scope: str, sha256: str) -> None:
        """Repeatable."""
        (self._folder(scope) / sha256).unlink(missing_ok=True)

    def clear(self, scope: str) -> None:
        """Remove the scope with everything in it. Repeatable."""
        folder = self._folder(scope)
        while folder.is_dir():
            # Another worker may be clearing it too.
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)
                _sync_folder(folder.parent)

    def scopes(self, under: str) -> list[str]:
        """The scopes directly inside `under`."""
        folder = self._folder(under)
        return sorted(f"{under}/{path.name}" for path in folder.iterdir()) if folder.is_dir() else []

    def sweep(self, older_than_seconds: float) -> int:
        """Remove temporary files that a killed process left; returns how many."""
        removed, limit = 0, time.time() - older_than_seconds
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                # The time of the last write: an upload under way is young, however long it takes.
                if path.stat().st_mtime < limit:
                    path.unlink()
                    removed += 1
        return removed

    def _folder(self, scope: str) -> Path:
        return self._root.joinpath(*scope.split("/"))

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        # One level at a time, because each new name must be synced in its own parent.
        self._make(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
