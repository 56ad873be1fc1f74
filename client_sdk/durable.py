"""Files that are whole or not there, also after the power went; among them the finished bytes that wait to be sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from client_sdk.errors import LedgerDamaged


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
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        # Also where somebody stops it: what is half written may be of patients.
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


def erase(paths: Iterable[Path]) -> None:
    """Remove these files of one directory, durably. One that is not there is no error."""
    present = [path for path in paths if path.exists()]
    for path in present:
        path.unlink(missing_ok=True)
    if present:
        sync_directory(present[0].parent)


def unfinished_files(directory: Path) -> list[Path]:
    """What a process that was killed left of `replacing`. Only for a directory that this process alone writes to."""
    return list(directory.glob(".*.tmp"))


CHECKPOINT = "checkpoint"
"""The file of a round under way, beside the finished bytes: `client_sdk.training.checkpoint`."""


class Outbox:
    """One study's folder: one file a round, synced before anything is sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, round: int, body: bytes) -> None:
        """Durable when this returns."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._file(round), body)

    def take(self, round: int, sha256: str | None) -> bytes:
        """The bytes of `round`, as often as asked.

        Raises:
            LedgerDamaged: the ledger holds another digest, or none.
        """
        try:
            body = self._file(round).read_bytes()
        except OSError:
            # Gone or altered is the same trouble to whoever has to send it.
            body = b""
        if hashlib.sha256(body).hexdigest() != sha256:
            raise LedgerDamaged(f"the finished update of round {round} is gone from {self.folder}")
        return body

    def forget_before(self, round: int) -> None:
        """Scrub updates of earlier rounds: they will not be asked for again, and their digests are in the ledger."""
        self.keep(lambda number: number >= round)

    def keep(self, is_needed: Callable[[int], bool], *, checkpoint: bool = True) -> None:
        """Scrub the updates of all other rounds, and what a killed process left half written.

        checkpoint  whether the checkpoint of a round under way stays
        """
        finished = (path for path in self.folder.glob("*.safetensors") if path.stem.isdigit())
        useless = [path for path in finished if not is_needed(int(path.stem))]
        erase([*useless, *unfinished_files(self.folder), *([] if checkpoint else [self.folder / CHECKPOINT])])

    def _file(self, round: int) -> Path:
        return self.folder / f"{round}.safetensors"
