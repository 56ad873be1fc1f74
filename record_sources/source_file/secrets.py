"""The password of a database, from a file, the environment or the system's keyring."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr

from record_sources.errors import SourceError
from record_sources.source_file.addresses import parsed
from record_sources.source_file.description import DatabaseAddress
from study_protocol.files.private import exposure


def read_password(address: DatabaseAddress) -> SecretStr | None:
    """Return the password of a database, or None where no entry says where it is.

    Raises:
        SourceError: the file, the variable or the keyring has none.
    """
    if address.password_file is not None:
        return SecretStr(_from_file(address.password_file))
    if (name := address.password_environment) is not None:
        if not (password := os.environ.get(name)):
            raise SourceError("password_environment: the environment variable that it names is not set or empty")
        return SecretStr(password)
    if address.password_keyring is not None:
        return SecretStr(_from_keyring(address.password_keyring, parsed(address.url).username or ""))
    return None


def open_secrets(address: DatabaseAddress) -> tuple[str, ...]:
    """Return one sentence if every user of this machine may read the password file."""
    path = address.password_file
    # A group of the mode may be of administrators.
    if path is None or (others := exposure(path, 0o007)) is None:
        return ()
    return (f"warning: every user of this machine may read {path.name} with the password {others}",)


def _from_file(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"password_file: {path.name} is no text in UTF-8") from None
    except OSError as error:
        raise SourceError(f"password_file: {path.name} cannot be read: {error.strerror}") from None
    # Editors end a file with a line break, and a password may end with a space.
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password:
        raise SourceError(f"password_file: {path.name} must hold the password alone, in one line")
    return password


def _from_keyring(service: str, user: str) -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise SourceError("password_keyring needs the package keyring: pip install keyring") from None
    try:
        password = keyring.get_password(service, user)
    # Backends of desktops raise errors of their own libraries, too. Their text may quote an entry.
    except (KeyringError, OSError, RuntimeError):
        raise SourceError(
            "password_keyring: this machine's keyring cannot be opened. Unlock it, or use password_file"
        ) from None
    if not password:
        raise SourceError(
            f"password_keyring: the keyring has no password of service {service} for user {user or '(none)'}. Store it "
            f"with: keyring set {service} {user}".rstrip()
        )
    return password
