"""Which program asks is signed with every request; the coordinator says what it is, and what a study needs."""

from __future__ import annotations

import hashlib

import jwt
import pytest

from client_sdk.protocol.versions import (
    PROTOCOL,
    PROTOCOL_HEADER,
    STUDY_PROTOCOL_HEADER,
    UNNUMBERED,
    VERSION_HEADER,
    program_version,
)
from client_sdk.protocol.wire.signing import SigningError, request_token, verify_request_token
from experiments import tiny
from tests.factories.live_coordinator import ORIGIN, Live, code_of


def test_the_coordinator_says_what_it_is(here: Live, study: str) -> None:
    versions = {"version": program_version(), "protocol": PROTOCOL, "min_protocol": UNNUMBERED}
    assert here.send("GET", "/version").json() == versions
    here.open_study(study)
    headers = here.operator("GET", f"/v1/studies/{study}").headers
    assert (headers[VERSION_HEADER], headers[PROTOCOL_HEADER]) == (program_version(), str(PROTOCOL))


def test_a_hospital_is_told_what_its_study_needs(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    for token_protocol in (PROTOCOL, UNNUMBERED, None):
        answer = here.signed(who, "GET", f"/v1/studies/{study}", protocol=token_protocol)
        assert (answer.status_code, answer.headers[STUDY_PROTOCOL_HEADER]) == (200, str(UNNUMBERED))


@pytest.mark.parametrize("protocol", [None, UNNUMBERED])
def test_a_program_below_what_the_study_needs_is_told_what_to_install(
    here: Live, study: str, protocol: int | None
) -> None:
    masked = tiny.settings("sequential", clients=4, rounds=2, bayesian=False, step_seconds=60.0)
    here.open_study(study, masked, model=False)
    who = here.enrol(study, "north")
    for method, path in (("GET", ""), ("GET", "/assignment?wait=0"), ("GET", "/ledger"), ("GET", "/events?wait=0")):
        answer = here.signed(who, method, f"/v1/studies/{study}{path}", protocol=protocol)
        assert code_of(answer) == (403, "client-too-old")
        assert f"install the version that the coordinator runs ({program_version()})" in answer.json()["detail"]
        needed = {"needed_protocol": 2, "spoken_protocol": 1, "coordinator_protocol": PROTOCOL}
        assert answer.json()["extra"] == needed | {"coordinator_version": program_version()}
    assert here.signed(who, "GET", f"/v1/studies/{study}").status_code == 200
    # It may always leave.
    path = f"/v1/studies/{study}/clients/north/withdrawn"
    assert here.signed(who, "PUT", path, protocol=protocol).status_code == 200


def test_the_number_is_covered_by_the_signature(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    path = f"/v1/studies/{study}"
    token = here.token(who, "GET", path)
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["pro"], claims["ver"]) == (PROTOCOL, program_version())
    head, _, signature = token.split(".")
    other = jwt.encode(claims | {"pro": 1}, who.key, algorithm="EdDSA").split(".")[1]
    assert code_of(here.send("GET", path, f"{head}.{other}.{signature}")) == (401, "bad-signature")


@pytest.mark.parametrize("wrong", [{"pro": "2"}, {"pro": True}, {"pro": 0}, {"pro": 2.0}, {"ver": 1}, {"ver": "a b"}])
def test_a_number_that_is_none_is_refused(here: Live, study: str, wrong: dict[str, object]) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    path = f"/v1/studies/{study}"
    claims = jwt.decode(here.token(who, "GET", path), options={"verify_signature": False})
    token = jwt.encode(claims | wrong, who.key, algorithm="EdDSA")
    assert code_of(here.send("GET", path, token)) == (401, "bad-token")


def test_a_token_without_a_number_is_of_the_version_before() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, url = Ed25519PrivateKey.generate(), f"{ORIGIN}/v1/studies/ward"
    said = {"client": "north", "study": "ward", "audience": ORIGIN, "method": "GET", "url": url, "now": 1e9}
    token = request_token(key, **said, body_sha256=hashlib.sha256(b"").hexdigest(), protocol=None)
    claims = verify_request_token(token, key.public_key(), audience=ORIGIN, method="GET", url=url, now=1e9)
    assert (claims.protocol, claims.program) == (UNNUMBERED, "unknown")
    with pytest.raises(SigningError):
        verify_request_token(token, key.public_key(), audience=ORIGIN, method="PUT", url=url, now=1e9)
