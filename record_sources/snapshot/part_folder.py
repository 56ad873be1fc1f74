"""The folder in which a snapshot is made, until it gets its name: for one process alone, and for no other user."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from record_sources.errors import SourceError

_LOCK = "lock"
_WRITTEN = "written"


class PartFolder:
    """The folder `.NAME.part` beside a snapshot, locked.

    Attributes:
        path: the folder.
        name: of the snapshot.
    """

    def __init__(self, path: Path, name: str, lock: int) -> None:
        self.path, self.name = path, name
        self._lock: int | None = lock

    @classmethod
    def take(cls, parent: Path, name: str) -> PartFolder:
        """Return a new folder. What a killed process left in it is removed.

        Raises:
            SourceError: a snapshot of this name exists, another process takes one, or there is no folder `parent`.
        """
        if not parent.is_dir():
            raise SourceError(f"there is no folder {parent.name or parent} for the snapshot. Make it first")
        path = _path(parent, name)
        # Locked before the check of names, so that no other process can publish in between.
        part = cls(path, name, _locked(path, name, make=True))
        try:
            _require_free(parent, name)
            for remnant in path.iterdir():
                if remnant.name != _LOCK:
                    shutil.rmtree(remnant) if remnant.is_dir() else remnant.unlink()
        except BaseException:
            part.remove()
            raise
        return part

    @classmethod
    def reopen(cls, parent: Path, name: str) -> PartFolder | None:
        """Return the folder that a killed process left, or None. Raises SourceError: another process uses it."""
        path = _path(parent, name)
        return cls(path, name, _locked(path, name, make=False)) if path.is_dir() else None

    def target(self, is_folder: bool) -> Path:
        """Return the path of the named snapshot."""
        return self.path.parent / (self.name if is_folder else f"{self.name}.parquet")

    def folder(self, *, is_folder: bool) -> Path:
        """Return the new folder for the files of the snapshot."""
        folder = self.path / _WRITTEN / self.name if is_folder else self.path / _WRITTEN
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def written(self, name: str, is_folder: bool) -> Path:
        """Return the path of the snapshot that has no name yet."""
        return self.path / _WRITTEN / (name if is_folder else f"{name}.parquet")

    def publish(self, target: Path) -> None:
        """Move what was written to its name, durably. Raises SourceError: the name is taken."""
        _require_free(target.parent, self.name)
        self.written(self.name, not target.name.endswith(".parquet")).rename(target)
        # Without it, the name may be gone after a loss of power, while the ledger has the entry.
        sync(target.parent)

    def remove(self) -> None:
        """Remove the folder and let go of it. A second time has no effect."""
        # An error here must not hide the one that led here.
        shutil.rmtree(self.path, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Let another process have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sync(path: Path) -> None:
    """Make a file, or renames in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _path(parent: Path, name: str) -> Path:
    return parent / f".{name}.part"


def _locked(path: Path, name: str, *, make: bool) -> int:
    while True:
        if make:
            path.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            # The kernel lets go of it when the process dies, in whatever way.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise SourceError(f"another process takes the snapshot {name}. Wait for it, or take another name") from None
        # Another process may have removed the folder after it was opened here.
        if (path / _LOCK).exists() and os.path.samestat(os.fstat(descriptor), (path / _LOCK).stat()):
            return descriptor
        os.close(descriptor)


def _require_free(parent: Path, name: str) -> None:
    for path in (parent / name, parent / f"{name}.parquet"):
        if path.exists() or path.is_symlink():
            raise SourceError(f"{path.name} exists, and a snapshot never replaces anything. Take another name")
