"""Signed requests: every way to be somebody else, somewhere else or somewhen else is refused, and changes nothing."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import ORIGIN, Live


def _code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["status"] == answer.status_code
    return answer.status_code, problem["code"]


@pytest.fixture(scope="module")
def north(here: Live) -> Hospital:
    here.open_study("auth")
    return here.enrol("auth", "north")


def test_a_signed_request_is_answered(here: Live, north: Hospital) -> None:
    assert here.signed(north, "GET", "/v1/studies/auth/budget").json()["study"] == "auth"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic eDp5", "Bearer a.b.c", "Bearer wrk_", "bearer"])
def test_without_a_token_nothing_opens(here: Live, header: str | None) -> None:
    answer = here.send(
        "GET", "/v1/studies/auth/budget", headers={"Authorization": header} if header is not None else {}
    )
    assert _code(answer) == (401, "bad-token")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1/studies", "/v1/studies/auth", "/v1/studies/nowhere", "/v1/api-keys"])
def test_everything_but_health_and_enrolment_wants_a_token(here: Live, north: Hospital, path: str) -> None:
    assert _code(here.send("GET", path)) == (401, "bad-token")


def test_another_key_is_refused(here: Live, north: Hospital) -> None:
    forger = replace(north, key=Ed25519PrivateKey.generate())
    assert _code(here.signed(forger, "GET", "/v1/studies/auth/budget")) == (401, "bad-signature")


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_another_algorithm_is_refused(here: Live, north: Hospital, algorithm: str) -> None:
    claims = jwt.decode(here.token(north, "GET", "/v1/studies/auth/budget"), options={"verify_signature": False})
    public = north.key.public_key().public_bytes_raw()
    forged = jwt.encode(claims, public if algorithm == "HS256" else None, algorithm=algorithm)
    assert _code(here.send("GET", "/v1/studies/auth/budget", forged)) == (401, "bad-token")


def test_a_changed_claim_breaks_the_signature(here: Live, north: Hospital) -> None:
    header, claims, signature = here.token(north, "GET", "/v1/studies/auth/budget").split(".")
    changed = json.loads(base64.urlsafe_b64decode(claims + "=="[: -len(claims) % 4])) | {"exp": int(time.time()) + 59}
    middle = base64.urlsafe_b64encode(json.dumps(changed).encode()).rstrip(b"=").decode()
    answer = here.send("GET", "/v1/studies/auth/budget", f"{header}.{middle}.{signature}")
    assert _code(answer) == (401, "bad-signature")


@pytest.mark.parametrize(
    "change",
    [
        {"audience": "https://other.example.org"},
        {"audience": ORIGIN + "/"},
        {"method": "PUT"},
        {"url": ORIGIN + "/v1/studies/other/budget"},
        {"url": ORIGIN + "/v1/studies/auth/budget?x=1"},
        {"url": "http://study.example.org/v1/studies/auth/budget"},
    ],
)
def test_a_token_for_another_request_is_refused(here: Live, north: Hospital, change: dict[str, Any]) -> None:
    said: dict[str, Any] = {"method": "GET", "url": ORIGIN + "/v1/studies/auth/budget"} | change
    token = here.token(north, said.pop("method"), "", **said)
    assert _code(here.send("GET", "/v1/studies/auth/budget", token)) == (401, "wrong-target")


def test_the_query_is_signed(here: Live, north: Hospital) -> None:
    path = "/v1/studies/auth/ledger?after=0&limit=1"
    assert here.signed(north, "GET", path).status_code == 200
    token = here.token(north, "GET", path)
    assert _code(here.send("GET", "/v1/studies/auth/ledger?after=0&limit=2", token)) == (401, "wrong-target")


def test_the_path_is_signed_as_it_came_not_as_it_reads(here: Live, north: Hospital) -> None:
    spelled = "/v1/studies/%61uth/budget"
    assert here.signed(north, "GET", spelled).status_code == 200
    token = here.token(north, "GET", "/v1/studies/auth/budget")
    assert _code(here.send("GET", spelled, token)) == (401, "wrong-target")


@pytest.mark.parametrize("skew", [-3600.0, -62.0, -7.0, 62.0, 3600.0])
def test_a_wrong_clock_is_told_the_time(here: Live, north: Hospital, skew: float) -> None:
    here.skew = skew
    answer = here.signed(north, "GET", "/v1/studies/auth/budget")
    assert _code(answer) == (401, "clock-skew")
    server_time = answer.json()["server_time"]
    assert abs(server_time - here.clock()) < 30
    assert here.signed(north, "GET", "/v1/studies/auth/budget", now=server_time).status_code == 200


def test_a_long_window_is_refused(here: Live, north: Hospital) -> None:
    claims = jwt.decode(here.token(north, "GET", "/v1/studies/auth/budget"), options={"verify_signature": False})
    forged = jwt.encode(claims | {"exp": claims["iat"] + 3600}, north.key, algorithm="EdDSA")
    assert _code(here.send("GET", "/v1/studies/auth/budget", forged)) == (401, "clock-skew")


def test_another_body_than_the_signed_one_is_refused(here: Live, north: Hospital) -> None:
    path = "/v1/studies/auth/rounds/1/refusals/north"
    token = here.token(north, "PUT", path, b'{"code":"policy"}')
    answer = here.send("PUT", path, token, json={"code": "budget"})
    assert _code(answer) == (400, "digest-mismatch")


def test_a_post_is_signed_once(here: Live, north: Hospital) -> None:
    path = "/v1/studies/auth/start"
    assert _code(here.signed(north, "POST", path)) == (401, "bad-token")
    token = here.token(north, "POST", path, token_id="once-and-only-once")
    # The first use is known by the door and refused by the room; the second does not pass the door.
    assert _code(here.send("POST", path, token)) == (403, "forbidden")
    assert _code(here.send("POST", path, token)) == (401, "replayed")


def test_a_client_of_another_study_sees_nothing_of_this_one(here: Live, north: Hospital, study: str) -> None:
    here.open_study(study)
    for noun in ("", "/budget", "/ledger", "/rounds", "/roster", "/models/0", "/assignment?wait=0", "/events?wait=0"):
        assert _code(here.signed(north, "GET", f"/v1/studies/{study}{noun}")) == (403, "forbidden")


def test_a_client_speaks_for_itself_only(here: Live, north: Hospital) -> None:
    here.enrol("auth", "east")
    for method, path in [
        ("PUT", "/v1/studies/auth/rounds/1/updates/east"),
        ("PUT", "/v1/studies/auth/rounds/1/refusals/east"),
        ("PUT", "/v1/studies/auth/clients/east/withdrawn"),
    ]:
        body = b'{"code":"policy"}' if "refusals" in path else update()
        assert _code(here.signed(north, method, path, body)) == (403, "forbidden"), path


def test_a_client_is_no_operator(here: Live, north: Hospital) -> None:
    for method, path in [("GET", "/v1/studies"), ("GET", "/v1/api-keys"), ("PUT", "/v1/studies/auth/models/0")]:
        assert _code(here.signed(north, method, path)) == (403, "forbidden"), path
    assert _code(here.signed(north, "PUT", "/v1/studies/auth/clients/north/revoked")) == (403, "forbidden")


def test_a_viewer_reads_and_does_not_act(here: Live, north: Hospital) -> None:
    for path in ("/v1/studies", "/v1/studies/auth", "/v1/studies/auth/budget", "/v1/studies/auth/ledger"):
        assert here.send("GET", path, here.viewer_key).status_code == 200, path
    for method, path in [
        ("POST", "/v1/studies/auth/start"),
        ("PUT", "/v1/studies/auth/models/0"),
        ("PUT", "/v1/studies/auth/clients/north/revoked"),
        ("GET", "/v1/api-keys"),
        ("DELETE", "/v1/api-keys/0"),
    ]:
        assert _code(here.send(method, path, here.viewer_key)) == (403, "forbidden"), path


def test_an_operator_is_no_hospital(here: Live, north: Hospital) -> None:
    assert _code(here.operator("GET", "/v1/studies/auth/assignment?wait=0")) == (403, "forbidden")
    answer = here.operator("PUT", "/v1/studies/auth/rounds/1/updates/north", content=update())
    assert _code(answer) == (403, "forbidden")


@pytest.mark.parametrize(
    "damage",
    [lambda k: k[:-1], lambda k: k + "0", lambda k: k.replace("_", "-"), lambda k: k.upper()],
    ids=["cut short", "longer", "hyphens", "capitals"],
)
def test_a_damaged_operator_key_opens_nothing(here: Live, damage: Any) -> None:
    assert _code(here.send("GET", "/v1/studies", damage(here.operator_key))) == (401, "bad-token")
