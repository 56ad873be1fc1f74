"""Log lines are JSON, carry the request's id and no message of an exception."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

import pytest
from starlette.types import Message

from server.telemetry import JsonLines, RequestLog, request_id


def _line(**extra: object) -> dict[str, object]:
    record = logging.makeLogRecord({"name": "wardround.api", "levelname": "INFO", "msg": "request", **extra})
    return json.loads(JsonLines().format(record))


def test_only_known_fields_are_written() -> None:
    line = _line(status=200, token="wrk_1_secret", body=b"patient")
    assert line["status"] == 200
    assert {"token", "body"}.isdisjoint(line)


def test_an_exception_gives_its_place_and_not_its_words() -> None:
    try:
        raise ValueError("patient 4711")
    except ValueError:
        line = _line(exc_info=sys.exc_info())
    assert line["exception"] == "ValueError"
    assert "test_telemetry.py" in str(line["frames"])
    assert "4711" not in json.dumps(line)


async def _through(headers: list[tuple[bytes, bytes]]) -> tuple[str, str]:
    seen: list[str] = []
    sent: list[Message] = []

    async def app(scope: object, receive: object, send: object) -> None:
        seen.append(request_id.get())
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await RequestLog(app)({"type": "http", "method": "GET", "headers": headers}, receive, send)
    return seen[0], dict(sent[0]["headers"])[b"x-request-id"].decode()


@pytest.mark.parametrize("given", [b"abc-1_2.3", b"x" * 64], ids=["every kind", "longest"])
def test_a_harmless_request_id_is_kept(given: bytes) -> None:
    assert asyncio.run(_through([(b"x-request-id", given)])) == (given.decode(), given.decode())


@pytest.mark.parametrize(
    "given",
    [b"", b"x" * 65, b"a\r\nSet-Cookie: b", b'{"a":1}', "ä".encode()],
    ids=["empty", "too long", "another header", "JSON", "not ASCII"],
)
def test_a_harmful_request_id_is_replaced(given: bytes) -> None:
    inside, outside = asyncio.run(_through([(b"x-request-id", given)]))
    assert inside == outside
    assert len(inside) == 16
    assert inside != given.decode()
