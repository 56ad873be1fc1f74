"""Whatever goes wrong is a problem document; nothing submitted comes back, nothing internal gets out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from starlette.types import Message, Receive, Scope, Send

from server.api.problems import Problems, problem_of
from tests.factories.live_coordinator import Live
from tests.factories.settings import limit, settings_json

CANARY = "patient-4711-canary"


def _problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert answer.headers["cache-control"] == "no-store"
    assert CANARY not in answer.text
    return answer.json()


def test_no_such_address(here: Live) -> None:
    _problem(here.operator("GET", f"/v1/{CANARY}"), 404, "not-found")


def test_no_such_file(here: Live) -> None:
    _problem(here.send("GET", f"/static/{CANARY}"), 404, "not-found")


def test_no_such_method(here: Live) -> None:
    answer = here.operator("PATCH", "/v1/studies")
    _problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        {"study": "Not A Name " + CANARY, "settings": settings_json()},
        {"study": "a", "settings": settings_json(), CANARY: 1},
        {"study": "a", "settings": settings_json(clip_norm=CANARY)},
        {"study": "a", "settings": settings_json(clip_norm=-1)},
        {"study": "a", "settings": settings_json(**{CANARY: 1})},
        {
            "study": "a",
            "settings": settings_json() | {"training": {"task": "x", "task_parameters": {CANARY: [CANARY]}}},
        },
        {"study": "a"},
        [CANARY],
        CANARY,
        None,
        {},
    ],
)
def test_an_invalid_request_is_not_repeated(here: Live, body: object) -> None:
    problem = _problem(here.operator("POST", "/v1/studies", json=body), 422, "invalid-request")
    assert problem["fields"]


@pytest.mark.parametrize(
    ("privacy", "field", "words"),
    [
        (
            {"adaptive_clip": {"quantile": 2.0, "rate": 0.2}},
            "body.settings.privacy.adaptive_clip.quantile",
            "less than",
        ),
        ({"noise_schedule": [{"rounds": 3, "factor": -1}]}, "body.settings.privacy.noise_schedule.0.factor", "greater"),
        ({"bayesian": {"orders": [0.0]}}, "body.settings.privacy.bayesian.orders.0", "greater"),
        ({"noise_schedule": [{"rounds": 2, "factor": 1.0}]}, "body.settings", ": privacy.noise_schedule: has 2 rounds"),
        (
            {"noise_multiplier": 1e-60},
            "body.settings.privacy.noise_multiplier",
            "privacy.noise_multiplier: must be between",
        ),
        (
            {"limits": [limit("instance", enforcement="gaussian-filter")]},
            "body.settings.privacy.limits.enforcement",
            "privacy.limits.enforcement: gaussian-filter needs all records",
        ),
    ],
)
def test_a_setting_is_named_with_its_section(here: Live, privacy: dict[str, Any], field: str, words: str) -> None:
    body = {"study": "named", "settings": settings_json(**privacy)}
    problem = _problem(here.operator("POST", "/v1/studies", json=body), 422, "invalid-request")
    assert (problem["fields"][0], "extra" in problem) == (field, False)
    assert words in problem["detail"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-0.0", "0", "-1", "null", "[]"])
def test_a_number_that_is_none_is_refused(here: Live, number: str) -> None:
    text = json.dumps({"study": "numbers", "settings": settings_json(clip_norm="X")}).replace('"X"', number)
    headers = {"Content-Type": "application/json"}
    _problem(here.operator("POST", "/v1/studies", content=text, headers=headers), 422, "invalid-request")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"study": ' + b"9" * 10_000 + b"}", b'{"study":"\\ud800"}'],
    ids=["empty", "cut short", "not UTF-8", "deep", "long number", "lone surrogate"],
)
def test_a_body_that_is_no_json_is_refused(here: Live, content: bytes) -> None:
    answer = here.operator("POST", "/v1/studies", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] == "invalid-request"


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_media_type_is_refused(here: Live, media_type: str) -> None:
    answer = here.operator("POST", "/v1/studies", content=b'{"study":"a"}', headers={"Content-Type": media_type})
    _problem(answer, 422, "invalid-request")


def test_a_large_json_body_is_refused_before_it_is_read(here: Live) -> None:
    with here.connect() as line:
        line.sendall(b"POST /v1/enrolments HTTP/1.1\r\nHost: x\r\nContent-Length: 2097152\r\n")
        line.sendall(b"Content-Type: application/json\r\n\r\n")
        answer = line.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"body-too-large"' in answer
    assert b"connection: close" in answer


def test_a_large_chunked_json_body_is_cut_off(here: Live) -> None:
    answer = here.send("POST", "/v1/enrolments", content=(b"x" * 65536 for _ in range(24)))
    _problem(answer, 413, "body-too-large")


def _raising(error: Exception) -> tuple[int, dict[str, object]]:
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(Problems(app)({"type": "http"}, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_a_fault_says_nothing_about_the_inside() -> None:
    status, problem = _raising(RuntimeError(CANARY))
    assert (status, problem["code"]) == (500, "internal")
    assert CANARY not in str(problem)


@pytest.mark.parametrize("error", [OperationalError(CANARY, {}, Exception(CANARY)), OSError(28, CANARY)])
def test_what_passes_says_when_to_come_back(error: Exception) -> None:
    status, problem = _raising(error)
    assert (status, problem["code"]) == (503, "unavailable")
    assert problem["retry_after_seconds"] == 2.0
    assert CANARY not in str(problem)
    assert problem_of(error).headers["retry-after"] == "2"


def test_an_answer_that_has_begun_is_cut_off_not_continued() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError(CANARY)

    async def nothing(*_: object) -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(RuntimeError, match=CANARY):
        asyncio.run(Problems(app)({"type": "http"}, nothing, nothing))  # type: ignore[arg-type]
