"""One invitation, one key: repeated it is the same enrolment, with anything else it admits nobody."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.wire.signing import encode_public_key
from tests.factories.live_coordinator import PROGRAM, Live, code_of


def test_enrolment_is_repeatable_with_the_same_key_only(here: Live, study: str) -> None:
    here.open_study(study)
    token, who = here.invite(study, "north"), here.hospital(study, "north")
    request = here.enrolment(who, token)
    first, again = (here.send("POST", "/v1/enrolments", json=request, headers=PROGRAM) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = here.enrolment(here.hospital(study, "north"), token)
    assert code_of(here.send("POST", "/v1/enrolments", json=other, headers=PROGRAM)) == (409, "invitation-used")


@pytest.mark.parametrize(
    "damage",
    [lambda t: t.replace("wri_", "wrk_"), lambda t: t.replace("_", "_0", 2), lambda t: "wri_1_2_3", lambda t: ""],
    ids=["another prefix", "zeros before", "made up", "empty"],
)
def test_a_damaged_invitation_admits_nobody(here: Live, study: str, damage: object) -> None:
    here.open_study(study)
    token = here.invite(study, "north")
    request = here.enrolment(here.hospital(study, "north"), token) | {"token": damage(token)}  # type: ignore[operator]
    answer = here.send("POST", "/v1/enrolments", json=request)
    assert answer.status_code in (401, 404, 422)
    assert here.operator("GET", f"/v1/studies/{study}/roster").json()["members"] == []


def test_a_borrowed_public_key_does_not_enrol(here: Live, study: str) -> None:
    here.open_study(study)
    request = here.enrolment(here.hospital(study, "north"), here.invite(study, "north"))
    request["public_key"] = encode_public_key(Ed25519PrivateKey.generate().public_key())
    assert code_of(here.send("POST", "/v1/enrolments", json=request)) == (401, "bad-signature")
