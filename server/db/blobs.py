"""Content-addressed files: their names, the port of their store, and a body on its way there.

A file is kept under its own SHA-256. A kept file is durable, and an opened one was compared with its name. Two stores
offer the port: folders (`server/db/file_blobs.py`) and an S3-compatible object store (`server/db/object_blobs.py`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from server.domain.errors import Rejected

logger = logging.getLogger("wardround.blobs")
_HASHED_AT_ONCE = 1 << 20
_REMEMBERED = 4096
ROUNDS = "rounds"
_MODELS, _UPDATE, _MASKED = "models/", "update.", "masked."


@dataclass(frozen=True)
class Place:
    """The place of files of one kind: a folder, and how their names in it begin."""

    folder: str
    kind: str

    @property
    def stays(self) -> bool:
        """Return whether its files are never removed."""
        return self.folder.startswith(_MODELS)

    @property
    def is_of_a_hospital(self) -> bool:
        """Return whether a hospital sent it, so that no copy of it may outlive its round."""
        return self.kind.startswith((_UPDATE, _MASKED))

    def name(self, sha256: str) -> str:
        return f"{self.kind}.{sha256}"

    def key(self, sha256: str) -> str:
        return f"{self.folder}/{self.name(sha256)}"

    def log_name(self, sha256: str) -> str:
        """Return a name for the log, without the hospital."""
        return f"{self.folder}/….{sha256}"


def models_of(study: str) -> Place:
    """Return the place of published models."""
    return Place(f"{_MODELS}{study}", "model")


def optimisers_of(study: str) -> Place:
    """Return the place of the server optimiser's state after a release."""
    return Place(f"optimisers/{study}", "state")


def round_folder(study: str, round_number: int) -> str:
    """Return the folder of one round's files that are scrubbed after it. One entry is made for all of them."""
    return f"{ROUNDS}/{study}/{round_number}"


def update_of(study: str, round_number: int, client: str) -> Place:
    """Return the place of one client's update. It is apart from the others', whose bytes may be the same."""
    return Place(round_folder(study, round_number), f"{_UPDATE}{client}")


def masked_of(study: str, round_number: int, client: str) -> Place:
    """Return the place of one client's masked vectors."""
    return Place(round_folder(study, round_number), f"{_MASKED}{client}")


def sum_of(study: str, round_number: int, vector: str) -> Place:
    """Return the place of the opened sum of one vector."""
    return Place(round_folder(study, round_number), f"sum.{vector}")


def noised_of(study: str, round_number: int) -> Place:
    """Return the place of the sum of the updates with the coordinator's own noise."""
    return Place(round_folder(study, round_number), "noised")


class StoreAway(Exception):
    """The store cannot be asked now. No file was changed, and the same call may succeed later."""

    # Its text may stand in the log.
    names_nobody = True


class StoreUnusable(Exception):
    """The store refuses what it is asked, and will go on to. The text says what to look at."""


@dataclass(frozen=True)
class Blob:
    """A file kept under its own SHA-256 (hex)."""

    sha256: str
    bytes: int


class OpenedFile:
    """A file that is open for reading. It stays whole until it is closed, even if its name is removed."""

    def __init__(self, source: Path | OpenedFile) -> None:
        self.descriptor = -1
        is_open = isinstance(source, OpenedFile)
        self.descriptor = os.dup(source.descriptor) if is_open else os.open(source, os.O_RDONLY)
        self.bytes = os.fstat(self.descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # An answer whose reading was never begun does not come to its end.
        self.close()

    def again(self) -> OpenedFile:
        """Open the same file once more, even if its name is gone."""
        return OpenedFile(self)

    def close(self) -> None:
        """Repeatable."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes, and none behind the end."""
        return os.pread(self.descriptor, size, offset)


class IncomingFile:
    """A body on its way to disk, hashed while it is written. Not durable before it is kept."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.bytes = 0
        self.limit = limit
        self._hash = hashlib.sha256()
        # Unbuffered: a failpoint or a full disk leaves exactly what was written.
        self._file = path.open("xb", buffering=0)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises Rejected `body-too-large` once the limit is passed, OSError when the disk is full."""
        if self.bytes + len(data) > self.limit:
            raise Rejected("body-too-large", f"at most {self.limit} bytes are taken here")
        rest = memoryview(data)
        self._hash.update(rest)
        while len(rest) > 0:
            written = self._file.write(rest)
            rest = rest[written or 0 :]
        self.bytes += len(data)

    def opened(self) -> OpenedFile:
        """Open the bytes written so far, for reading."""
        return OpenedFile(self.path)

    def sync(self) -> None:
        """Make the bytes so far durable."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class Blobs(Protocol):
    """The port of the store of models, updates and sums, for any number of threads, processes and machines.

    Raises StoreAway if the store does not answer, OSError if this machine's disk fails.
    """

    def receive(self, limit: int) -> AbstractContextManager[IncomingFile]:
        """Yield a temporary file for at most `limit` bytes. It is removed at the end unless it was kept."""
        ...

    def keep(self, incoming: IncomingFile, place: Place) -> Blob:
        """Give it its name. It is durable and visible to all processes when this returns, and `incoming` is used up."""
        ...

    def write(self, place: Place, data: bytes) -> Blob:
        """Keep bytes that are in memory."""
        ...

    def open(self, place: Place, sha256: str) -> OpenedFile | None:
        """Return the file, its bytes compared with its name, or None if it is gone, or damaged, which is logged."""
        ...

    def has(self, place: Place, sha256: str) -> bool:
        """Return whether there is a file of this name. Its bytes are not looked at."""
        ...

    def hashes(self, place: Place) -> list[str]:
        """Return the hashes of all files in the place."""
        ...

    def remove(self, place: Place, sha256: str) -> None:
        """Repeatable."""
        ...

    def clear(self, folder: str) -> None:
        """Remove the folder with everything in it. Repeatable, also by two workers at once."""
        ...

    def folders(self, under: str) -> list[str]:
        """Return the folders directly inside `under`."""
        ...

    def sweep(self, older_than_seconds: float) -> int:
        """Remove temporary files that a killed process left, and return how many."""
        ...

    def check(self) -> None:
        """Write a file and remove it again. Raises StoreAway, StoreUnusable, OSError."""
        ...


class Comparison:
    """Files that this process has compared with their hashes: each once, while it is not written to."""

    def __init__(self) -> None:
        self._compared: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, descriptor: int, sha256: str) -> None:
        """Note that the file's bytes were hashed as they were written."""
        with self._lock:
            self._compared[_identity(descriptor, sha256)] = None
            while len(self._compared) > _REMEMBERED:
                self._compared.popitem(last=False)

    def holds(self, descriptor: int, sha256: str) -> bool:
        """Return whether the file has this SHA-256."""
        if _identity(descriptor, sha256) in self._compared:
            return True
        if hashed(descriptor) != sha256:
            return False
        self.note(descriptor, sha256)
        return True


def hashed(descriptor: int) -> str:
    """Return the SHA-256 (hex) of an opened file."""
    digest, offset = hashlib.sha256(), 0
    while piece := os.pread(descriptor, _HASHED_AT_ONCE, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()


def _identity(descriptor: int, sha256: str) -> tuple[object, ...]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, sha256
