"""What the use cases need from outside: blobs, coins, noise and the coordinator's signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


@dataclass(frozen=True)
class Written(Generic[T]):
    """The answer to a write that may be repeated; `created` is False when it was here already."""

    body: T
    created: bool


@dataclass(frozen=True)
class Blob:
    """A file kept under its own SHA-256 (hex)."""

    sha256: str
    bytes: int
    path: Path


class Incoming(Protocol):
    """A body on its way to disk, hashed while it is written. Not durable before it is kept."""

    @property
    def path(self) -> Path: ...

    @property
    def sha256(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises Rejected `body-too-large` once the limit is passed."""
        ...

    def sync(self) -> None:
        """What was written is on the disk."""
        ...


class Blobs(Protocol):
    """Content-addressed files in scopes such as `models/sepsis` or `rounds/sepsis/7`."""

    def receive(self, limit: int) -> AbstractContextManager[Incoming]:
        """Open a temporary file for at most `limit` bytes; it is gone at the end of the context unless kept."""
        ...

    def keep(self, incoming: Incoming, scope: str) -> Blob:
        """Make it durable under its hash: fsync the file, rename, fsync the folder."""
        ...

    def write(self, scope: str, data: bytes) -> Blob: ...

    def find(self, scope: str, sha256: str) -> Path | None: ...

    def remove(self, scope: str, sha256: str) -> None: ...

    def clear(self, scope: str) -> None:
        """Remove the scope with everything in it."""
        ...

    def scopes(self, under: str) -> list[str]:
        """The scopes directly inside `under`."""
        ...

    def sweep(self, older_than_seconds: float) -> int:
        """Remove temporary files that a killed process left; returns how many."""
        ...


class Coins(Protocol):
    """Unpredictable choices."""

    def heads(self, rate: float, *, client: str, round: int) -> bool:
        """Whether the client takes part in the round: True with probability exactly `rate`."""
        ...

    def session(self, round: int) -> bytes:
        """32 bytes that name the round's secure sum."""
        ...

    def token(self, size: int) -> bytes:
        """`size` unpredictable bytes."""
        ...


class NoiseSource(Protocol):
    def of(self, round: int) -> Callable[[float, int], NDArray[np.int64]]:
        """draw(std, size): the round's next (size,) discrete Gaussians with parameter `std`, in grid units."""
        ...


class Signer(Protocol):
    """The coordinator's own Ed25519 key."""

    @property
    def public_key(self) -> str:
        """32 raw bytes in base64url."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hex; the last part of every invitation."""
        ...

    def sign(self, label: str, document: Mapping[str, Any]) -> str: ...

    def sign_statement(self, statement: bytes) -> bytes:
        """Over a labelled hash of the secure sum's transcript."""
        ...
