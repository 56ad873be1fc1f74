"""Retries, clock, errors and credentials: what every call of the API has in common."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.api import calls
from client_sdk.api.attempts import OperatorKey, ServerClock, Signature
from client_sdk.api.calls import Call
from client_sdk.api.client import AsyncClient, Client
from client_sdk.api.config import Connection
from client_sdk.api.transport import AsyncTransport, Transport
from client_sdk.errors import (
    ApiError,
    AuthenticationError,
    ClockSkewError,
    ConfigurationError,
    ConflictError,
    ConnectionFailed,
    InvalidRequestError,
    NotFoundError,
    ServerFailure,
    UnexpectedAnswer,
)
from client_sdk.protocol.study.messages import InvitationCreate, Roster, StudyList
from tests.factories.coordinator_in_process import ORIGIN, problem

CONNECTION = Connection(url="https://dialled.example", patience_seconds=100.0)
ROSTER = {"study": "sepsis", "members": [], "fingerprint": "0" * 64}
KEY = Ed25519PrivateKey.generate()
MERCY = Signature(KEY, "mercy", "sepsis", ORIGIN)
Answerer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answerer, credentials: Any = MERCY, **options: Any) -> tuple[Client, list[float]]:
    slept: list[float] = []
    transport = Transport(CONNECTION, handler=httpx.MockTransport(answer))
    return Client(CONNECTION, credentials, transport=transport, sleep=slept.append, **options), slept


def script(*answers: httpx.Response | type[Exception]) -> tuple[Answerer, list[httpx.Request]]:
    """One answer after another; the last one for ever."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        given = answers[min(len(seen), len(answers)) - 1]
        if isinstance(given, httpx.Response):
            return httpx.Response(given.status_code, content=given.content, headers=given.headers)
        raise given("network")

    return answer, seen


def claims(request: httpx.Request) -> dict[str, Any]:
    token = request.headers["authorization"].removeprefix("Bearer ")
    return jwt.decode(token, KEY.public_key(), algorithms=["EdDSA"], audience=ORIGIN)


GOOD = httpx.Response(200, json=ROSTER)


def test_a_get_is_repeated_after_retry_after_and_signed_anew() -> None:
    answer, seen = script(problem(503, "unavailable", {"Retry-After": "7"}), GOOD)
    api, slept = client(answer, clock=ServerClock())
    assert api.roster("sepsis").study == "sepsis"
    assert len(slept) == 1
    assert 7.0 < slept[0] <= 7.125
    assert [r.url.path for r in seen] == ["/v1/studies/sepsis/roster"] * 2


def test_the_public_origin_is_signed_whatever_is_dialled() -> None:
    answer, seen = script(httpx.Response(200, json=ROSTER))
    api, _ = client(answer)
    api.send(Call("GET", "/v1/a?b=c", lambda answer: None))
    assert seen[0].url.host == "dialled.example"
    said = claims(seen[0])
    assert (said["htu"], said["htm"], said["iss"], said["sub"]) == (f"{ORIGIN}/v1/a?b=c", "GET", "mercy", "sepsis")
    assert "jti" not in said


def test_a_lost_answer_to_a_put_is_repeated_with_the_same_bytes() -> None:
    receipt = {"study": "sepsis", "round": 1, "client": "mercy", "sha256": "0" * 64, "bytes": 3}
    answer, seen = script(httpx.ReadTimeout, httpx.ReadError, httpx.Response(201, json=receipt))
    api, slept = client(answer)
    assert api.put_update("sepsis", 1, "mercy", b"abc").round == 1
    assert [r.content for r in seen] == [b"abc"] * 3
    assert len(slept) == 2


def test_a_post_that_may_have_arrived_is_not_repeated() -> None:
    answer, seen = script(httpx.ReadTimeout, GOOD)
    api, slept = client(answer, OperatorKey("wrk_1_s"))
    with pytest.raises(ConnectionFailed):
        api.invite("sepsis", InvitationCreate(client="mercy"))
    assert (len(seen), slept) == (1, [])


def test_a_post_that_did_nothing_is_repeated_under_one_token_id() -> None:
    answer, seen = script(httpx.ConnectError, problem(503, "unavailable"), httpx.Response(200, json=ROSTER))
    api, _ = client(answer)
    api.send(Call("POST", "/v1/x", lambda answer: None, repeatable=False))
    assert len(seen) == 3
    assert len({claims(request)["jti"] for request in seen}) == 1


def test_patience_ends_with_the_last_error() -> None:
    answer, _ = script(problem(503, "unavailable", {"Retry-After": "101"}))
    api, slept = client(answer)
    with pytest.raises(ServerFailure) as caught:
        api.roster("sepsis")
    assert (caught.value.code, caught.value.request_id, slept) == ("unavailable", "r-1", [])


def test_a_skewed_clock_is_corrected_once_by_the_servers_time() -> None:
    ahead = time.time() + 5000
    answer, seen = script(problem(401, "clock-skew", server_time=ahead), GOOD)
    clock = ServerClock()
    api, _ = client(answer, clock=clock)
    api.roster("sepsis")
    api.roster("sepsis")
    first, second, third = (
        jwt.decode(r.headers["authorization"][7:], options={"verify_signature": False}) for r in seen
    )
    assert abs(second["iat"] - ahead) < 10
    assert second["iat"] - first["iat"] > 4000
    assert third["iat"] >= second["iat"]


def test_a_clock_that_stays_skewed_is_a_clear_error() -> None:
    answer, seen = script(problem(401, "clock-skew", server_time=0.0))
    api, _ = client(answer)
    with pytest.raises(ClockSkewError, match="clock-skew"):
        api.roster("sepsis")
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthenticationError),
        (403, AuthenticationError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, ConflictError),
        (413, InvalidRequestError),
        (422, InvalidRequestError),
        (500, ServerFailure),
    ],
)
def test_a_problem_becomes_its_error_with_code_and_request_id(status: int, kind: type[ApiError]) -> None:
    answer, seen = script(problem(status, "some-code"))
    api, _ = client(answer)
    with pytest.raises(kind) as caught:
        api.roster("sepsis")
    assert (caught.value.code, caught.value.request_id, len(seen)) == ("some-code", "r-1", 1)
    assert "some-code" in str(caught.value)
    assert "r-1" in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(403, content=b"<html>blocked by the firewall</html>", headers={"X-Request-Id": "r-9"}),
        httpx.Response(200, json=ROSTER | {"surprise": 1}, headers={"X-Request-Id": "r-9"}),
        httpx.Response(200, content=b"{", headers={"X-Request-Id": "r-9"}),
        httpx.Response(302, headers={"Location": "https://login.example", "X-Request-Id": "r-9"}),
    ],
)
def test_an_answer_of_something_else_is_named_as_such(answer: httpx.Response) -> None:
    api, _ = client(script(answer)[0])
    with pytest.raises(UnexpectedAnswer) as caught:
        api.roster("sepsis")
    assert caught.value.request_id == "r-9"
    assert "firewall" not in str(caught.value)


def test_a_model_is_checked_against_the_digest_in_the_answer() -> None:
    api, _ = client(script(httpx.Response(200, content=b"weights", headers={"ETag": f'"{"0" * 64}"'}))[0])
    with pytest.raises(UnexpectedAnswer, match="not the one"):
        api.model("sepsis")


def test_a_signed_call_without_credentials_is_refused_before_it_is_sent() -> None:
    answer, seen = script(GOOD)
    api, _ = client(answer, None)
    with pytest.raises(ConfigurationError):
        api.roster("sepsis")
    assert seen == []


def test_keys_are_masked_in_every_repr() -> None:
    key = OperatorKey("wrk_ab12_hunter2")
    api, _ = client(script(GOOD)[0], key)
    assert "hunter2" not in repr(key) + repr(api)
    assert "ab12" in repr(key)
    private = KEY.private_bytes_raw().hex()
    assert private not in repr(MERCY)
    for wrong in ("", "wrk", "wrk_a", "wrk__x", "wrk_a_", "key_a_b"):
        with pytest.raises(ConfigurationError, match="form"):
            OperatorKey(wrong)


def test_names_in_paths_cannot_escape_them() -> None:
    assert calls.study("a/../b?c").target == "/v1/studies/a%2F..%2Fb%3Fc"


def test_the_twin_repeats_and_reads_the_same() -> None:
    answer, seen = script(httpx.ReadTimeout, httpx.Response(200, json={"studies": [], "next": None}))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask() -> StudyList:
        transport = AsyncTransport(CONNECTION, handler=httpx.MockTransport(answer))
        async with AsyncClient(CONNECTION, OperatorKey("wrk_1_s"), transport=transport, sleep=sleep) as api:
            return await api.send(calls.studies())

    assert asyncio.run(ask()).studies == []
    assert (len(seen), len(slept)) == (2, 1)


def test_a_roster_survives_its_json() -> None:
    api, _ = client(script(GOOD)[0])
    assert api.roster("sepsis") == Roster.model_validate_json(json.dumps(ROSTER))
