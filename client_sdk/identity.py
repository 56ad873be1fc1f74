"""This hospital's identity: its private key, and what it pinned of each study's coordinator."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from client_sdk.errors import ConfigurationError, KeyFileError
from study_protocol.files.durable import move_durably, write_durably
from study_protocol.files.names import is_device
from study_protocol.files.private import exposure, make_private_folder
from study_protocol.study.messages import RosterEntry
from study_protocol.wire.octets import EncodedKey
from study_protocol.wire.signing import encode_public_key, fingerprint
from study_protocol.wire.values import NAME_PATTERN, Message, Name

KEY_FILE = "identity.key"
NEXT_KEY_FILE = "identity.key.next"
DRAW_KEY_FILE = "draws.key"


class Membership(Message):
    """One enrolment of this hospital: what it dials, and the coordinator's key as it was pinned.

    url     the address that is dialled
    origin  the public origin that signatures name
    pinned  the roster that a person compared out of band, if one did
    """

    study: Name
    client: Name
    url: str
    origin: str
    coordinator_key: EncodedKey
    pinned: tuple[RosterEntry, ...] | None = None


class Identity:
    """The hospital's Ed25519 key and memberships, in one directory (0700). Its repr shows the public fingerprint."""

    def __init__(self, directory: Path, key: Ed25519PrivateKey) -> None:
        self.directory, self.key = directory, key

    @classmethod
    def create(cls, directory: Path, name: str = KEY_FILE) -> Identity:
        """Return the identity in `directory`, with a new key if there is none yet.

        Raises:
            KeyFileError: as `open`.
        """
        make_private_folder(directory)
        # Never a new key for an old one: this hospital would be a stranger to its studies.
        if not (directory / name).exists():
            key = Ed25519PrivateKey.generate()
            pem = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            write_durably(directory / name, pem)
        # Read back, so that a key that was there already is checked like any other.
        return cls.open(directory, name)

    @classmethod
    def open(cls, directory: Path, name: str = KEY_FILE) -> Identity:
        """The identity in `directory`.

        Raises:
            KeyFileError: no key, one that others may read, or one that is damaged.
        """
        path = directory / name
        try:
            others = exposure(path)
            pem = path.read_bytes()
        except OSError as error:
            raise KeyFileError(f"{path} cannot be read: enrol first, or name the right directory") from error
        # Whoever could read it may have copied it, and could sign as this hospital.
        if others is not None:
            raise KeyFileError(f"{path} may be read by others {others}, or enrol with a new key")
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise KeyFileError(f"{path} is damaged: restore it, or enrol with a new key") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyFileError(f"{path} is not an Ed25519 key")
        return cls(directory, key)

    @property
    def public_key(self) -> str:
        return encode_public_key(self.key.public_key())

    def take_next_key(self) -> None:
        """Put the key in NEXT_KEY_FILE in the place of the old one, durably. This object keeps the old one."""
        move_durably(self.directory / NEXT_KEY_FILE, self.directory / KEY_FILE)

    def draw_secret(self) -> bytes:
        """Return 32 secret bytes for `HospitalRandomness`, new ones where there are none.

        Earlier draws do not need the old ones, so that a lost or damaged file is replaced.
        """
        path = self.directory / DRAW_KEY_FILE
        if not path.exists() or path.stat().st_size != 32 or exposure(path) is not None:
            write_durably(path, secrets.token_bytes(32))
        return path.read_bytes()

    def memberships(self) -> list[Membership]:
        """Every study that this hospital enrolled in, by name."""
        return [self.membership(path.stem) for path in sorted((self.directory / "studies").glob("*.json"))]

    def membership(self, study: str) -> Membership:
        """Raises ConfigurationError if this directory is not enrolled in `study`, or its file is damaged."""
        path = self._path(study)
        try:
            return Membership.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"this hospital has not enrolled in study {study!r}") from error
        except ValidationError as error:
            raise ConfigurationError(f"{path} is damaged: enrol again with the same token") from error

    def remember(self, membership: Membership) -> None:
        """Write it durably."""
        path = self._path(membership.study)
        make_private_folder(path.parent)
        write_durably(path, membership.model_dump_json(indent=1).encode())

    def _path(self, study: str) -> Path:
        # It becomes part of a path.
        if not re.fullmatch(NAME_PATTERN, study):
            raise ConfigurationError(f"{study!r} is not the name of a study")
        if is_device(study):
            raise ConfigurationError(
                f"study {study!r} has the name of a device on Windows, where a file of this name keeps nothing: take "
                "part from another system"
            )
        return self.directory / "studies" / f"{study}.json"

    def __repr__(self) -> str:
        return f"Identity({str(self.directory)!r}, key {fingerprint(self.key.public_key())[:16]}…)"
