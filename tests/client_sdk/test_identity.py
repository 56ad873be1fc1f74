import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.errors import ConfigurationError, KeyFileError
from client_sdk.identity import KEY_FILE, Identity, Membership
from study_protocol.files.private import exposure
from study_protocol.wire.signing import encode_public_key
from tests.harness.windows.system import let_others_in


def public() -> str:
    return encode_public_key(Ed25519PrivateKey.generate().public_key())


def membership(**fields: object) -> Membership:
    values = {
        "study": "sepsis",
        "client": "mercy",
        "url": "https://x",
        "origin": "https://x",
        "coordinator_key": public(),
    }
    return Membership.model_validate(values | fields)


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    made = Identity.create(tmp_path / "home")
    assert Identity.create(tmp_path / "home").public_key == made.public_key
    assert exposure(tmp_path / "home" / KEY_FILE) is None
    assert exposure(tmp_path / "home") is None
    assert [path.name for path in (tmp_path / "home").iterdir()] == [KEY_FILE]


@pytest.mark.posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_of_every_mode_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    Identity.create(tmp_path)
    os.chmod(tmp_path / KEY_FILE, mode)
    with pytest.raises(KeyFileError, match="chmod 600"):
        Identity.open(tmp_path)


def test_a_key_that_others_may_read_is_refused_with_what_to_do(tmp_path: Path) -> None:
    home = tmp_path / "home"
    Identity.create(home)
    let_others_in(home / KEY_FILE)
    with pytest.raises(KeyFileError, match=r"may be read by others .*(chmod 600|icacls).*, or enrol with a new key"):
        Identity.open(home)


def test_a_missing_damaged_or_foreign_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="enrol first"):
        Identity.open(tmp_path)
    Identity.create(tmp_path)
    path = tmp_path / KEY_FILE
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(KeyFileError, match="damaged"):
        Identity.open(tmp_path)
    other = generate_private_key(SECP256R1())
    none = serialization.NoEncryption()
    path.write_bytes(other.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none))
    with pytest.raises(KeyFileError, match="Ed25519"):
        Identity.open(tmp_path)


def test_the_private_key_is_in_no_repr(tmp_path: Path) -> None:
    identity = Identity.create(tmp_path)
    assert identity.key.private_bytes_raw().hex() not in repr(identity)


def test_memberships_are_remembered_and_damage_is_named(tmp_path: Path) -> None:
    identity = Identity.create(tmp_path)
    kept = [membership(), membership(study="stroke")]
    for one in kept:
        identity.remember(one)
    assert Identity.open(tmp_path).memberships() == kept
    with pytest.raises(ConfigurationError, match="not enrolled"):
        identity.membership("flu")
    (tmp_path / "studies" / "sepsis.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="damaged"):
        identity.membership("sepsis")


@pytest.mark.parametrize(
    "study", ["../identity", "a/b", "", "UPPER", "x" * 64], ids=["parent", "folder", "empty", "capitals", "too long"]
)
def test_a_study_name_is_never_a_path(tmp_path: Path, study: str) -> None:
    with pytest.raises(ConfigurationError):
        Identity.create(tmp_path).membership(study)
