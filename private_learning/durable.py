"""Files that are whole or not there, also after the power went."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`. Raises as `replacing`."""
    with replacing(path, mode=mode) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` at the end: written beside it, synced, renamed, and the directory synced.

    Raises:
        OSError: the disk is full or read-only; `path` is as it was.
    """
    # In the same directory, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        # Also where somebody stops it: what is half written may be of patients.
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def erase(paths: Iterable[Path]) -> None:
    """Remove these files of one directory, durably. One that is not there is no error."""
    present = [path for path in paths if path.exists()]
    for path in present:
        path.unlink(missing_ok=True)
    if present:
        sync_directory(present[0].parent)


def unfinished_files(directory: Path) -> list[Path]:
    """The state that a killed process left of `replacing`. Only for a directory that this process alone writes to."""
    return list(directory.glob(".*.tmp"))


CHECKPOINT = "checkpoint"
"""The file of a round under way, beside the finished bytes: `private_learning.training.checkpoint`."""
