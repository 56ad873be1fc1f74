from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.errors import ConfigurationError, ConflictError, NotTrusted
from client_sdk.identity import Identity
from client_sdk.study.hospital import Hospital
from study_protocol.wire.signing import encode_public_key
from tests.factories.coordinator_in_process import ORIGIN, Coordinator
from tests.factories.hospitals import coordinator

DIALLED = "https://inside.example:8443/"


def enrol(other: Coordinator, directory: Path, token: str) -> Hospital:
    def dial(connection: Connection) -> Transport:
        return Transport(connection, handler=httpx.MockTransport(other.answer))

    def patient(url: str) -> Connection:
        return Connection(url=url.rstrip("/"), patience_seconds=2.0)

    return Hospital.enrol(DIALLED, token, directory=directory, connection=patient, transport=dial)


def test_enrolment_pins_the_key_and_keeps_address_and_origin_apart(tmp_path: Path) -> None:
    other = coordinator()
    enrolled = enrol(other, tmp_path, other.token("mercy"))
    kept = enrolled.identity.membership("sepsis")
    assert kept.coordinator_key == encode_public_key(other.key.public_key())
    assert (kept.client, kept.url, kept.origin, kept.pinned) == ("mercy", "https://inside.example:8443", ORIGIN, None)
    assert other.members == {"mercy": enrolled.identity.public_key}


def test_the_same_token_again_is_the_same_membership(tmp_path: Path) -> None:
    other = coordinator()
    token = other.token("mercy")
    assert enrol(other, tmp_path, token).identity.memberships() == enrol(other, tmp_path, token).identity.memberships()
    identity = enrol(other, tmp_path, token).identity
    pinned = identity.membership("sepsis").model_copy(update={"pinned": ()})
    identity.remember(pinned)
    assert enrol(other, tmp_path, token).identity.membership("sepsis") == pinned


def test_a_used_token_is_worth_nothing_to_another_hospital(tmp_path: Path) -> None:
    other = coordinator()
    enrol(other, tmp_path / "a", other.token("mercy"))
    with pytest.raises(ConflictError, match="invitation-used"):
        enrol(other, tmp_path / "b", other.token("mercy"))


def test_a_coordinator_that_did_not_make_the_token_is_not_trusted(tmp_path: Path) -> None:
    other = coordinator()
    token = other.token("mercy")
    other.key = Ed25519PrivateKey.generate()
    with pytest.raises(NotTrusted, match="not the one that made"):
        enrol(other, tmp_path, token)
    assert Identity.open(tmp_path).memberships() == []


SPOILT: list[Callable[[str], str]] = [lambda t: t[:-1], lambda t: t[4:], lambda t: "", str.upper, lambda t: t + "0"]


@pytest.mark.parametrize("spoil", SPOILT, ids=["cut short", "no prefix", "empty", "capitals", "longer"])
def test_half_a_token_is_refused_before_anything_is_sent(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    other = coordinator()
    token = other.token("mercy", secret="hunter2")
    with pytest.raises(ConfigurationError, match="copy all of it") as caught:
        enrol(other, tmp_path, spoil(token))
    assert other.requests == []
    assert "hunter2" not in str(caught.value)
