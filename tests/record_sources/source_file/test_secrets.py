"""Passwords from a file, the environment and the keyring, never shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from record_sources.errors import SourceError
from record_sources.source_file.description import DatabaseAddress
from record_sources.source_file.secrets import open_secrets, read_password

URL = "postgresql+psycopg://reader@db.example/clinic"


@pytest.mark.parametrize("written", ["open sesame", "open sesame\n", "\ufeffopen sesame\r\n"])
def test_a_file_holds_the_password_alone(tmp_path: Path, written: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(written.encode())
    password = read_password(DatabaseAddress(url=URL, password_file=path))
    assert password is not None
    assert password.get_secret_value() == "open sesame"
    assert "sesame" not in f"{password!r} {password}"


@pytest.mark.posix
@pytest.mark.parametrize(("mode", "is_open"), [(0o600, False), (0o640, False), (0o644, True), (0o666, True)])
def test_a_file_that_every_user_may_read_is_named(tmp_path: Path, mode: int, is_open: bool) -> None:
    path = tmp_path / "password"
    path.touch()
    path.chmod(mode)
    warnings = open_secrets(DatabaseAddress(url=URL, password_file=path))
    assert [f"read password with the password (mode {mode:03o}): chmod 600 it" in words for words in warnings] == [
        True
    ] * is_open
    assert open_secrets(DatabaseAddress(url=URL)) == ()


@pytest.mark.parametrize("written", [b"", b"\n", b"a\nb", b"\xff"])
def test_a_file_that_holds_no_password_is_refused(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "password"
    path.write_bytes(written)
    with pytest.raises(SourceError, match="password_file: password"):
        read_password(DatabaseAddress(url=URL, password_file=path))


def test_the_environment_holds_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    address = DatabaseAddress(url=URL, password_environment="CLINIC")
    # A person may have written the password itself there.
    with pytest.raises(SourceError, match="is not set or empty") as error:
        read_password(address)
    assert "CLINIC" not in str(error.value)
    monkeypatch.setenv("CLINIC", "open sesame")
    password = read_password(address)
    assert password is not None
    assert password.get_secret_value() == "open sesame"
    assert read_password(DatabaseAddress(url=URL)) is None


class LockedKeyring(Exception):
    """What a keyring raises that nobody opened."""


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str, str], str | None]], None]:
    """Puts a keyring in the place of the package, which would ask the desktop."""

    def install(get_password: Callable[[str, str], str | None]) -> None:
        keyring, errors = ModuleType("keyring"), ModuleType("keyring.errors")
        keyring.__dict__.update(get_password=get_password, errors=errors)
        errors.__dict__["KeyringError"] = LockedKeyring
        monkeypatch.setitem(sys.modules, "keyring", keyring)
        monkeypatch.setitem(sys.modules, "keyring.errors", errors)

    return install


def test_the_keyring_is_asked_for_the_user_of_the_address(
    answered: Callable[[Callable[[str, str], str | None]], None],
) -> None:
    address, stored = DatabaseAddress(url=URL, password_keyring="clinic"), {("clinic", "reader"): "open sesame"}
    answered(lambda service, user: stored.get((service, user)))
    password = read_password(address)
    assert password is not None
    assert password.get_secret_value() == "open sesame"
    stored.clear()
    with pytest.raises(SourceError, match="keyring set clinic reader"):
        read_password(address)

    def locked(service: str, user: str) -> str:
        raise LockedKeyring("open sesame")

    answered(locked)
    with pytest.raises(SourceError, match="cannot be opened") as error:
        read_password(address)
    assert "sesame" not in str(error.value)
