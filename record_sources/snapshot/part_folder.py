"""The folder in which a snapshot is made, until it gets its name: for one process alone, and for no other user."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from record_sources.errors import SourceError
from study_protocol.files.durable import move_durably
from study_protocol.files.lock import FileInUse, FileLock
from study_protocol.files.private import make_private, make_private_folder

_LOCK = "lock"
_WRITTEN = "written"


class PartFolder:
    """The folder `.NAME.part` beside a snapshot, locked.

    Attributes:
        path: the folder.
        name: of the snapshot.
    """

    def __init__(self, path: Path, name: str, lock: FileLock) -> None:
        self.path, self.name = path, name
        self._lock = lock

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
            part._clear()
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
        make_private_folder(folder)
        return folder

    def written(self, name: str, is_folder: bool) -> Path:
        """Return the path of the snapshot that has no name yet."""
        return self.path / _WRITTEN / (name if is_folder else f"{name}.parquet")

    def publish(self, target: Path) -> None:
        """Move what was written to its name, durably. Raises SourceError: the name is taken."""
        _require_free(target.parent, self.name)
        written = self.written(self.name, not target.name.endswith(".parquet"))
        # Elsewhere it is so from its beginning. On Windows it would inherit from its new folder later.
        make_private(written)
        # Durably, so that the name is not gone after a loss of power, while the ledger has the entry.
        move_durably(written, target)

    def remove(self) -> None:
        """Remove the folder and let go of it. A second time has no effect."""
        if not self._lock.is_held:
            return
        # An error here must not hide the one that led here. The lock goes last, so that no other process is in it.
        with suppress(OSError):
            self._clear()
            self._lock.remove()
            self.path.rmdir()
        self.close()

    def close(self) -> None:
        """Let another process have the folder."""
        self._lock.release()

    def _clear(self) -> None:
        for remnant in self.path.iterdir():
            if remnant.name != _LOCK:
                shutil.rmtree(remnant) if remnant.is_dir() else remnant.unlink()


def _path(parent: Path, name: str) -> Path:
    return parent / f".{name}.part"


def _locked(path: Path, name: str, *, make: bool) -> FileLock:
    while True:
        if make:
            make_private_folder(path)
        try:
            return FileLock(path / _LOCK)
        except FileInUse:
            raise SourceError(f"another process takes the snapshot {name}. Wait for it, or take another name") from None
        except FileNotFoundError:
            # The holder before removed the folder meanwhile.
            if not make:
                raise


def _require_free(parent: Path, name: str) -> None:
    for path in (parent / name, parent / f"{name}.parquet"):
        if path.exists() or path.is_symlink():
            raise SourceError(f"{path.name} exists, and a snapshot never replaces anything. Take another name")
