"""A lock on a file for one process at a time. The system releases it when the process ends, in whatever way."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

if os.name == "nt":
    import msvcrt

    _HELD_ERRORS = {errno.EACCES, errno.EDEADLK}
    # No other process can read a locked byte. This one lies behind all that stands in the file.
    _LOCKED_BYTE = 1 << 30

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _close(descriptor: int) -> None:
        # A lock that is left to the system may stay for a while.
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        os.close(descriptor)
else:
    import fcntl

    _HELD_ERRORS = {errno.EAGAIN}

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    _close = os.close


class FileInUse(Exception):
    """Another process, or another lock of this one, holds the file."""


class FileLock:
    """A held lock, whose file is made where there is none.

    Attributes:
        path: of the file.
        descriptor: of the open file.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            FileInUse: it is held.
            OSError: the file cannot be opened, or its file system keeps no locks.
        """
        self.path = path
        self.descriptor = _locked(path)

    @property
    def is_held(self) -> bool:
        """Return whether it was not released yet."""
        return self.descriptor >= 0

    def release(self) -> None:
        """Let another process have it. A second time has no effect."""
        if self.is_held:
            _close(self.descriptor)
        self.descriptor = -1

    def remove(self) -> None:
        """Remove the file of a held lock, and release it. Raises OSError: the file cannot be removed."""
        try:
            self.path.unlink(missing_ok=True)
        except PermissionError:
            # Windows removes no open file. There, one that another process has opened meanwhile stays.
            self.release()
            with suppress(OSError):
                self.path.unlink()
        self.release()


def _locked(path: Path) -> int:
    while True:
        descriptor = _opened(path)
        try:
            if not _take(descriptor):
                raise FileInUse(f"another process holds {path}")
            if _is_at(descriptor, path):
                _require_exclusion(path)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # The holder before removed the file after it was opened here.
        os.close(descriptor)


def _opened(path: Path) -> int:
    # Never through a link that was put in its place. Windows makes none for ordinary users.
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _take(descriptor: int) -> bool:
    """Return whether the lock is held now. Raises OSError: it is not, for another reason than another holder."""
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _HELD_ERRORS:
            return False
        raise
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    # Windows removes no open file.
    if os.name == "nt":
        return True
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _require_exclusion(path: Path) -> None:
    """Raise OSError if a second lock on the held file is granted: two holders of a ledger would spend twice."""
    second = _opened(path)
    try:
        if _take(second):
            raise OSError(errno.ENOLCK, "the file system keeps no locks: use a local disk", str(path))
    finally:
        os.close(second)
