"""A coordinator that has moved is found again by its key alone."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.errors import ConfigurationError, ConnectionFailed, NotTrusted, UnexpectedAnswer, WardroundError
from client_sdk.identity import Identity, Membership
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


@pytest.mark.parametrize("is_dialled", [False, True])
def test_another_origin_is_taken_where_the_coordinator_asks_for_it(
    is_dialled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator()
    here, asked = hospital(other, tmp_path), list[str]()
    if is_dialled:
        # The public address was wrong when this hospital enrolled, and is put right at the same place.
        membership = here.identity.membership("sepsis")
        here.identity.remember(membership.model_copy(update={"url": NEW}))
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


@pytest.mark.parametrize(
    ("code", "said"),
    [("bad-signature", "does not know this hospital"), ("wrong-target", "has another public address than")],
)
def test_a_coordinator_that_does_not_know_this_hospital_is_refused(code: str, said: str, tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.meddle = lambda request: problem(401, code)
    with pytest.raises(NotTrusted, match=said):
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


def test_the_address_of_before_needs_no_answer(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    here.move("sepsis", NEW)

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("away", request=request)

    other.meddle = away
    here.move("sepsis", NEW)
    assert address(tmp_path) == (NEW, ORIGIN)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://moved.example.org", ConfigurationError),
        ("https://moved.example.org/study", ConfigurationError),
        ("moved.example.org", ConfigurationError),
        (NEW, UnexpectedAnswer),
    ],
)
def test_what_is_no_address_or_leads_elsewhere_is_not_kept(
    url: str, error: type[WardroundError], tmp_path: Path
) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.meddle = lambda request: httpx.Response(301, headers={"location": ORIGIN + request.url.path})
    with pytest.raises(error):
        here.move("sepsis", url)
    assert address(tmp_path) == (ORIGIN, ORIGIN)


def test_the_head_of_another_study_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = coordinator()
    here, head = hospital(other, tmp_path), other.head()
    monkeypatch.setattr(other, "head", lambda: head.model_copy(update={"study": "asthma"}))
    with pytest.raises(NotTrusted, match="is not the coordinator"):
        here.move("sepsis", NEW)
    assert address(tmp_path) == (ORIGIN, ORIGIN)


def test_a_move_that_was_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    second = here.identity.membership("sepsis").model_copy(update={"study": "zoster"})
    here.identity.remember(second)
    real, kept = Identity.remember, list[str]()

    def killed(identity: Identity, membership: Membership) -> None:
        if kept:
            raise KeyboardInterrupt
        kept.append(membership.study)
        real(identity, membership)

    with monkeypatch.context() as cut:
        cut.setattr(Identity, "remember", killed)
        with pytest.raises(KeyboardInterrupt):
            here.move("sepsis", NEW)
    here.move("sepsis", NEW)
    assert {m.study: m.url for m in here.identity.memberships()} == {"sepsis": NEW, "zoster": NEW}
