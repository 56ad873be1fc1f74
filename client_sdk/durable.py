"""Files that are whole or not there, also after the power went."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`: written beside it, synced, renamed, and the directory synced.

    Raises:
        OSError: the disk is full or read-only; `path` is as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
