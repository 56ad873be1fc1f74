"""One invitation, one key: repeated it is the same enrolment, with anything else it admits nobody."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from study_protocol.versions import ALL_QUESTIONS, PROTOCOL_HEADER, VERSION_HEADER, program_version
from study_protocol.wire.signing import encode_public_key
from tests.factories.live_coordinator import PROGRAM, Live, code_of
from tests.factories.settings import statistics_settings


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
    ("headers", "named"),
    [
        ({}, "names no version, as older ones do, and counts as number 1"),
        ({VERSION_HEADER: "0.0.3"}, "names no version"),
        ({VERSION_HEADER: "0.0.3", PROTOCOL_HEADER: "3"}, "this one (version 0.0.3) speaks number 3"),
        ({PROTOCOL_HEADER: "3"}, "this one (version unknown) speaks number 3"),
    ],
    ids=["neither", "no number", "both", "no version"],
)
def test_a_program_that_is_too_old_is_told_so_and_keeps_its_invitation(
    here: Live, study: str, headers: dict[str, str], named: str
) -> None:
    here.open_study(study, statistics_settings(masked=False), model=False)
    token = here.invite(study, "north")
    request = here.enrolment(here.hospital(study, "north"), token)
    answer = here.send("POST", "/v1/enrolments", json=request, headers=headers)
    assert code_of(answer) == (403, "client-too-old")
    needs = f"this study needs programs that speak number {ALL_QUESTIONS} of the protocol, and "
    install = f"install the version that the coordinator runs ({program_version()}) or a newer one at this hospital"
    for said in (needs, named, install, "enrol again with the same token: it was not used"):
        assert said in answer.json()["detail"]
    assert token not in answer.text
    assert answer.json()["extra"]["needed_protocol"] == ALL_QUESTIONS
    assert here.operator("GET", f"/v1/studies/{study}/roster").json()["members"] == []
    # Once the version is installed, the same token admits, with another key, too.
    request = here.enrolment(here.hospital(study, "north"), token)
    assert here.send("POST", "/v1/enrolments", json=request, headers=PROGRAM).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [{PROTOCOL_HEADER: "0"}, {PROTOCOL_HEADER: "+4"}, {PROTOCOL_HEADER: "4.0"}, {PROTOCOL_HEADER: "9" * 40}]
    + [PROGRAM | {VERSION_HEADER: wrong} for wrong in ("", "0 1", "<b>", "a" * 65)],
)
def test_a_program_is_named_in_its_form(here: Live, study: str, headers: dict[str, str]) -> None:
    here.open_study(study)
    token = here.invite(study, "north")
    request = here.enrolment(here.hospital(study, "north"), token)
    answer = here.send("POST", "/v1/enrolments", json=request, headers=headers)
    assert code_of(answer) == (422, "invalid-request")
    assert here.send("POST", "/v1/enrolments", json=request, headers=PROGRAM).status_code == 201


def test_a_study_for_programs_without_a_number_admits_one(here: Live, study: str) -> None:
    here.open_study(study)
    with here.coordinator.database.engine.begin() as connection:
        # What the migration wrote for every study that was there.
        connection.execute(text("UPDATE studies SET protocol = 1 WHERE name = :name"), {"name": study})
    who = here.hospital(study, "north")
    request = here.enrolment(who, here.invite(study, "north"))
    assert here.send("POST", "/v1/enrolments", json=request).status_code == 201
    path = f"/v1/studies/{study}/versions"
    assert here.operator("GET", path).json()["hospitals"][0]["comparison"] == "unknown"
    # From its first signed request on it is known to name none.
    assert here.signed(who, "GET", f"/v1/studies/{study}/budget", protocol=None).status_code == 200
    assert here.operator("GET", path).json()["hospitals"][0]["comparison"] == "differs"


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
