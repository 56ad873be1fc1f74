"""The coordinator's Ed25519 key: one file that only its owner can read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.secure_sum import transcript
from study_protocol.wire.signing import encode_public_key, fingerprint, sign_document

FILE_NAME = "coordinator.key"
_KEY_BYTES = 32


class SigningKeyUnusable(Exception):
    """The key file is missing, damaged or readable by others. The text says what to do."""


class SigningKey:
    """The coordinator's signing key: for ledger heads, assignments, certificates, a sum's parameters and its result."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = encode_public_key(key.public_key())
        self.fingerprint = fingerprint(key.public_key())

    def __repr__(self) -> str:
        return f"SigningKey({self.fingerprint[:16]}…)"

    def sign(self, label: str, document: Mapping[str, Any]) -> str:
        """Return a signature over the label and the canonical JSON of `document`."""
        return sign_document(self._key, label, document)

    def sign_statement(self, statement: bytes) -> bytes:
        """Return a signature over a statement of the secure sum's transcript, which carries its own label."""
        return transcript.sign(self._key, statement)


def create_signing_key(home: Path) -> bool:
    """Make the key file (mode 0600) unless there is one, and return whether this call made it.

    The file appears whole: it is written aside and linked under its name, which fails if the name is taken.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, aside = home / FILE_NAME, home / f".{FILE_NAME}.{os.urandom(8).hex()}"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, Ed25519PrivateKey.generate().private_bytes_raw())
        os.fsync(descriptor)
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        os.close(descriptor)
        aside.unlink()
        # The name, too, survives a power cut, even if another process made it: hospitals pin the key at the first
        # invitation.
        _sync(home)
    return True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_signing_key(home: Path, shared: Path | None = None) -> SigningKey:
    """Return the key under `home`, or the one that several coordinators share. Raises SigningKeyUnusable."""
    path = shared or home / FILE_NAME
    try:
        raw, status = path.read_bytes(), path.stat()
    except FileNotFoundError as error:
        missing = "yet: run `wardround migrate`" if shared is None else f"at {shared}"
        raise SigningKeyUnusable(f"there is no signing key {missing}") from error
    # A secret that is mounted for us has another owner, and is read through its group.
    if status.st_mode & (0o077 if status.st_uid == os.geteuid() else 0o027):
        raise SigningKeyUnusable(f"{path.name} can be read by others: set its mode to 0600")
    if len(raw) != _KEY_BYTES:
        raise SigningKeyUnusable(f"{path.name} is not an Ed25519 key: restore it from its backup")
    return SigningKey(Ed25519PrivateKey.from_private_bytes(raw))
