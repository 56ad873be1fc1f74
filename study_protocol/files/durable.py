"""Files that are whole or not there, also after the power went.

On Windows a folder cannot be synced. NTFS writes changes of names in their order, so that after a loss of power the
last of them may be undone, and no other. A new name is synced there with its file, as PostgreSQL does it. Removals
need no sync: whoever removes a file here removes it again at the next start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from study_protocol.files.private import open_private

# On Windows a file cannot be replaced or removed as long as a virus scanner or another reader has it open.
_ATTEMPTS, _SECONDS_BETWEEN = 20, 0.1


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`. Raises as `replacing`."""
    with replacing(path, mode=mode) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` at the end: written beside it, synced, renamed, and the directory synced.

    mode  with 0600, its owner alone may use it, on Windows too

    Raises:
        OSError: the disk is full or read-only; `path` is as it was.
    """
    # In the same directory, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        move_durably(temporary, path)
    except BaseException:
        # Also where somebody stops it: what is half written may be of patients.
        temporary.unlink(missing_ok=True)
        raise


def move_durably(source: Path, target: Path) -> None:
    """Give a synced file or folder its name, in the place of a file of that name. Raises OSError."""
    _persistently(partial(os.replace, source, target))
    if os.name == "nt" and target.is_file():
        sync_file(target)
    sync_directory(target.parent)


def sync_file(path: Path) -> None:
    """Make the contents of a file durable."""
    # Windows syncs no file that is open for reading alone.
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in `directory` durable. On Windows it has no effect, as this module's text says."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def erase(paths: Iterable[Path]) -> None:
    """Remove these files of one directory, durably. One that is not there is no error."""
    present = [path for path in paths if path.exists()]
    for path in present:
        _persistently(partial(path.unlink, missing_ok=True))
    if present:
        sync_directory(present[0].parent)


def unfinished_files(directory: Path) -> list[Path]:
    """The state that a killed process left of `replacing`. Only for a directory that this process alone writes to."""
    return list(directory.glob(".*.tmp"))


def _persistently(change: Callable[[], None]) -> None:
    for _ in range(_ATTEMPTS if os.name == "nt" else 0):
        try:
            change()
        except PermissionError:
            time.sleep(_SECONDS_BETWEEN)
        else:
            return
    change()
