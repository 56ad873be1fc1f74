"""A coordinator that has moved is found again by its key alone."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.errors import ConnectionFailed, NotTrusted
from client_sdk.identity import Identity
from tests.factories.coordinator_in_process import ORIGIN
from tests.factories.hospitals import coordinator, hospital
from tests.factories.participations import join
from tests.factories.wire_answers import problem

NEW = "https://moved.example.org"


def address(directory: Path) -> tuple[str, str]:
    membership = Identity.open(directory).membership("sepsis")
    return membership.url, membership.origin


def test_the_new_address_is_kept_and_used(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    here.move("sepsis", NEW + "/")
    assert address(tmp_path) == (NEW, ORIGIN)
    hosts = set[str]()

    def watch(request: httpx.Request) -> None:
        hosts.add(request.url.host)

    other.meddle = watch
    join(here)
    assert hosts == {"moved.example.org"}
    here.move("sepsis", NEW)
    assert address(tmp_path) == (NEW, ORIGIN)


def test_another_origin_is_taken_where_the_coordinator_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator()
    here, asked = hospital(other, tmp_path), list[str]()
    monkeypatch.setattr("tests.factories.coordinator_in_process.ORIGIN", NEW)

    def meddle(request: httpx.Request) -> httpx.Response | None:
        asked.append(request.url.path)
        return problem(401, "wrong-target") if len(asked) == 1 else None

    other.meddle = meddle
    here.move("sepsis", NEW)
    assert len(asked) == 2
    assert address(tmp_path) == (NEW, NEW)


def test_a_coordinator_with_another_key_is_refused(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.key = Ed25519PrivateKey.generate()
    with pytest.raises(NotTrusted, match="its key is another"):
        here.move("sepsis", NEW)
    assert address(tmp_path) == (ORIGIN, ORIGIN)


@pytest.mark.parametrize("code", ["bad-signature", "wrong-target"])
def test_a_coordinator_that_does_not_know_this_hospital_is_refused(code: str, tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.meddle = lambda request: problem(401, code)
    with pytest.raises(NotTrusted, match="does not know this hospital"):
        here.move("sepsis", NEW)
    assert address(tmp_path) == (ORIGIN, ORIGIN)


def test_an_address_without_an_answer_is_not_kept(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("away", request=request)

    other.meddle = away
    with pytest.raises(ConnectionFailed):
        here.move("sepsis", NEW)
    assert address(tmp_path) == (ORIGIN, ORIGIN)
