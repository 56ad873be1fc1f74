"""Retries, clock, errors and credentials: what every call of the API has in common."""

import asyncio
import gzip
import json
import time

import httpx
import jwt
import pytest

from client_sdk.api.client import ApiKey, AsyncClient, ServerClock
from client_sdk.api.transport import AsyncTransport, Call
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
from study_protocol.study.messages import InvitationCreate, Roster, StudyList
from tests.factories.answers import CONNECTION, GOOD, ROSTER, claims, client, script
from tests.factories.wire_answers import problem


def test_a_get_is_repeated_after_retry_after_and_signed_anew() -> None:
    answer, seen = script(problem(503, "unavailable", {"Retry-After": "7"}), GOOD)
    api, slept = client(answer, clock=ServerClock())
    assert api.roster("sepsis").study == "sepsis"
    assert len(slept) == 1
    assert 7.0 < slept[0] <= 7.125
    assert [r.url.path for r in seen] == ["/v1/studies/sepsis/roster"] * 2


def test_a_lost_answer_to_a_put_is_repeated_with_the_same_bytes() -> None:
    receipt = {"study": "sepsis", "round": 1, "client": "mercy", "sha256": "0" * 64, "bytes": 3}
    answer, seen = script(httpx.ReadTimeout, httpx.ReadError, httpx.Response(201, json=receipt))
    api, slept = client(answer)
    assert api.put_update("sepsis", 1, "mercy", b"abc").round == 1
    assert [r.content for r in seen] == [b"abc"] * 3
    assert len(slept) == 2


def test_a_post_that_may_have_arrived_is_not_repeated() -> None:
    answer, seen = script(httpx.ReadTimeout, GOOD)
    api, slept = client(answer, ApiKey("wrk_1_s"))
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
    ahead = time.time() + 200
    answer, seen = script(problem(401, "clock-skew", server_time=ahead), GOOD)
    clock = ServerClock()
    api, _ = client(answer, clock=clock)
    api.roster("sepsis")
    api.roster("sepsis")
    first, second, third = (
        jwt.decode(r.headers["authorization"][7:], options={"verify_signature": False}) for r in seen
    )
    assert abs(second["iat"] - ahead) < 10
    assert second["iat"] - first["iat"] > 150
    assert third["iat"] >= second["iat"]


def test_a_clock_that_stays_skewed_is_a_clear_error() -> None:
    answer, seen = script(problem(401, "clock-skew", server_time=time.time() + 200))
    api, _ = client(answer)
    with pytest.raises(ClockSkewError, match="clock-skew"):
        api.roster("sepsis")
    assert len(seen) == 2


@pytest.mark.parametrize("years", [-10, 10])
def test_a_time_that_nobody_signed_does_not_move_the_clock_by_years(years: float) -> None:
    answer, seen = script(problem(401, "clock-skew", server_time=time.time() + years * 365.25 * 86400))
    clock = ServerClock()
    api, _ = client(answer, clock=clock)
    with pytest.raises(ClockSkewError, match="clock-skew"):
        api.roster("sepsis")
    assert (len(seen), clock.offset) == (1, 0.0)


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


def test_a_signed_call_without_credentials_is_refused_before_it_is_sent() -> None:
    answer, seen = script(GOOD)
    api, _ = client(answer, None)
    with pytest.raises(ConfigurationError):
        api.roster("sepsis")
    assert seen == []


def test_the_twin_repeats_and_reads_the_same() -> None:
    answer, seen = script(httpx.ReadTimeout, httpx.Response(200, json={"studies": [], "next": None}))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask() -> StudyList:
        transport = AsyncTransport(CONNECTION, handler=httpx.MockTransport(answer))
        async with AsyncClient(CONNECTION, ApiKey("wrk_1_s"), transport=transport, sleep=sleep) as api:
            return await api.studies()

    assert asyncio.run(ask()).studies == []
    assert (len(seen), len(slept)) == (2, 1)


def test_a_roster_survives_its_json() -> None:
    api, _ = client(script(GOOD)[0])
    assert api.roster("sepsis") == Roster.model_validate_json(json.dumps(ROSTER))


def test_a_packed_try_again_later_is_tried_again() -> None:
    packed = httpx.Response(503, content=gzip.compress(b"<html>later</html>"), headers={"Content-Encoding": "gzip"})
    answer, seen = script(packed, httpx.Response(200, json=ROSTER))
    here, waited = client(answer)
    assert isinstance(here.roster("sepsis"), Roster)
    assert (len(seen), len(waited)) == (2, 1)
