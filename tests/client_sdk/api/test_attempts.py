"""One call through its attempts, step by step, without a network or a wait."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from client_sdk.api.attempts import PROBLEM, Attempts, Backoff, ServerClock, may_repeat, retry_after_seconds
from client_sdk.api.client import ApiKey
from client_sdk.api.transport import Call, HttpAnswer
from client_sdk.errors import ClockSkewError, ConfigurationError, ConnectionFailed, ServerFailure, UnexpectedAnswer

KEY = ApiKey("wrk_1_s")


class Noting:
    """Credentials that note what they were asked to sign."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def authorization(self, **asked: Any) -> str:
        self.asked.append(asked)
        return f"Bearer {len(self.asked)}"


def attempts(method: str = "GET", *, credentials: Any = KEY, clock: ServerClock | None = None, **call: Any) -> Any:
    backoff = Backoff(100.0, clock=lambda: 0.0, uniform=lambda low, high: high)
    made: Call[bytes] = Call(method, "/v1/x?a=1", lambda answer: answer.body, **call)
    return Attempts(made, credentials, clock or ServerClock(read=lambda: 1000.0), backoff)


def problem(status: int, code: str, headers: Mapping[str, str] | None = None, **more: Any) -> HttpAnswer:
    document = {"type": "t", "title": "t", "status": status, "code": code, "detail": "d", "request_id": "r-1"} | more
    return HttpAnswer(
        status, {"content-type": f"{PROBLEM}; charset=utf-8", **(headers or {})}, json.dumps(document).encode()
    )


def test_a_good_answer_is_the_result() -> None:
    exchange = attempts()
    assert exchange.answered(HttpAnswer(200, {}, b"yes")) is None
    assert exchange.result == b"yes"


def test_each_attempt_is_signed_anew_and_a_post_keeps_its_token_id() -> None:
    for method, named in (("GET", False), ("PUT", False), ("DELETE", False), ("POST", True)):
        noting = Noting()
        exchange = attempts(method, credentials=noting, body=b"b")
        assert [exchange.headers()["Authorization"] for _ in range(2)] == ["Bearer 1", "Bearer 2"]
        first, second = noting.asked
        assert first == second
        assert (first["method"], first["target"], first["body"], first["now"]) == (method, "/v1/x?a=1", b"b", 1000.0)
        assert (first["token_id"] is not None) is named


def test_an_open_call_shows_no_credentials_and_needs_none() -> None:
    assert "Authorization" not in attempts(credentials=KEY, open=True).headers()
    assert "Authorization" not in attempts(credentials=None, open=True).headers()
    with pytest.raises(ConfigurationError, match="API key"):
        attempts(credentials=None)


def test_pauses_double_and_obey_retry_after() -> None:
    exchange = attempts()
    assert exchange.answered(problem(503, "unavailable")) == 0.5
    assert exchange.failed(ConnectionFailed("gone")) == 1.0
    # A quarter of the third pause of 2 s is the jitter on top of what was asked for.
    assert exchange.answered(problem(429, "slow", {"retry-after": "9"})) == 9.5


def test_what_may_have_been_done_is_not_done_again() -> None:
    exchange = attempts("POST", repeatable=False)
    with pytest.raises(ConnectionFailed):
        exchange.failed(ConnectionFailed("silence", sent=True))
    assert exchange.failed(ConnectionFailed("refused", sent=False)) == 0.5
    with pytest.raises(ServerFailure):
        exchange.answered(problem(502, "bad-gateway"))


def test_the_clock_is_corrected_once() -> None:
    clock = ServerClock(read=lambda: 1000.0)
    exchange = attempts(clock=clock)
    assert exchange.answered(problem(401, "clock-skew", server_time=1250.0)) == 0.0
    assert (clock.now(), clock.read()) == (1250.0, 1000.0)
    with pytest.raises(ClockSkewError):
        exchange.answered(problem(401, "clock-skew", server_time=1250.0))


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]"], ids=["page", "empty", "list"])
def test_a_problem_that_is_none_is_an_unexpected_answer(body: bytes) -> None:
    headers = {"content-type": PROBLEM, "x-request-id": "r-9"}
    with pytest.raises(UnexpectedAnswer, match="status 404") as caught:
        attempts().answered(HttpAnswer(404, headers, body))
    assert caught.value.request_id == "r-9"


NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_of_its_forms(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, now=NOW) == seconds


def test_pauses_double_up_to_a_ceiling_and_stay_within_half_of_it() -> None:
    low = Backoff(1e9, clock=lambda: 0.0, uniform=lambda a, b: a)
    high = Backoff(1e9, clock=lambda: 0.0, uniform=lambda a, b: b)
    assert [high.pause() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert [low.pause() for _ in range(3)] == [0.25, 0.5, 1.0]


def test_retry_after_is_obeyed_with_jitter_on_top_only() -> None:
    backoff = Backoff(1e9, clock=lambda: 0.0, uniform=lambda a, b: b)
    assert backoff.pause(9.0) == 9.0 + 0.5 / 4


def test_patience_ends_before_a_pause_that_would_pass_it() -> None:
    clock = [0.0]
    backoff = Backoff(10.0, clock=lambda: clock[0], uniform=lambda a, b: b)
    assert backoff.pause() == 0.5
    assert backoff.pause(11.0) is None
    clock[0] = 9.9
    assert backoff.pause() is None


def test_patience_begins_with_the_first_failure_however_long_that_attempt_took() -> None:
    clock = [0.0]
    backoff = Backoff(10.0, clock=lambda: clock[0], uniform=lambda a, b: b)
    clock[0] = 600.0
    assert backoff.pause() == 0.5
    clock[0] = 610.0
    assert backoff.pause() is None


def test_only_what_did_nothing_repeats_a_request_that_must_not_happen_twice() -> None:
    assert all(may_repeat(repeatable=True, status=status) for status in (408, 429, 502, 503, 504))
    assert [s for s in (408, 429, 500, 502, 503, 504) if may_repeat(repeatable=False, status=s)] == [429, 503]
    assert not any(may_repeat(repeatable=True, status=status) for status in (400, 401, 404, 409, 410, 413, 422, 500))


@pytest.mark.parametrize(
    "header",
    ["9" * 400, "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "\u00b2"],
    ids=["400 digits", "3,000 years", "far date", "superscript"],
)
def test_no_retry_after_sends_anybody_to_sleep_for_good(header: str) -> None:
    """Nor to a number of seconds that no sleep takes."""
    backoff = Backoff(math.inf, clock=lambda: 0.0, uniform=lambda a, b: b)
    pause = backoff.pause(retry_after_seconds(header, now=NOW))
    assert pause is not None
    assert 0 < pause <= 610
