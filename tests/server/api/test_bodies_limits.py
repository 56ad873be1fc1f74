"""Bodies that are too big, too slow or too short, seen from the ASGI side and over a real socket."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from server.api.bodies import Body, Intake, body_of
from server.api.problems import Problems

LIMIT = 100


async def _echo_length(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


class _Attempts:
    """One request whose pieces are given as (seconds to wait, bytes)."""

    def __init__(self, headers: dict[str, str], *pieces: tuple[float, bytes], gone: bool = False) -> None:
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        }
        self.pieces = list(pieces)
        self.gone = gone
        self.read = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        if not self.pieces:
            return {"type": "http.disconnect"}
        pause, data = self.pieces.pop(0)
        await asyncio.sleep(pause)
        self.read += len(data)
        return {"type": "http.request", "body": data, "more_body": bool(self.pieces) or self.gone}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def run(self, *, idle: float = 5.0, rate: int = 0) -> tuple[int, bytes, dict[bytes, bytes]]:
        app = Intake(Problems(_echo_length), limit=LIMIT, idle_seconds=idle, min_rate=rate)
        asyncio.run(app(self.scope, self.receive, self.send))
        return self.sent[0]["status"], self.sent[1]["body"], dict(self.sent[0]["headers"])


def test_a_body_within_the_limit_is_read() -> None:
    assert _Attempts({"Content-Length": "4"}, (0, b"ab"), (0, b"cd")).run()[:2] == (200, b"4")


def test_an_announced_excess_is_refused_before_a_byte_is_read() -> None:
    exchange = _Attempts({"Content-Length": "101"}, (0, b"x" * 101))
    status, body, headers = exchange.run()
    assert status == 413
    assert b'"body-too-large"' in body
    assert exchange.read == 0
    assert headers[b"connection"] == b"close"


def test_a_chunked_excess_is_counted() -> None:
    exchange = _Attempts({"Transfer-Encoding": "chunked"}, *[(0, b"x" * 30)] * 20)
    assert exchange.run()[0] == 413
    assert exchange.read == 120


def test_exactly_the_limit_fits() -> None:
    assert _Attempts({"Transfer-Encoding": "chunked"}, (0, b"x" * LIMIT)).run()[0] == 200


def test_silence_is_cut_off() -> None:
    status, body, _ = _Attempts({"Content-Length": "4"}, (0, b"ab"), (60, b"cd")).run(idle=0.05)
    assert status == 408
    assert b'"body-too-slow"' in body


def test_a_trickle_is_cut_off_although_it_never_pauses() -> None:
    exchange = _Attempts({"Transfer-Encoding": "chunked"}, *[(0.03, b"x")] * 60)
    assert exchange.run(idle=0.1, rate=1000)[0] == 408
    assert exchange.read < 60


def test_a_body_that_ends_early_is_not_taken_for_whole() -> None:
    status, body, _ = _Attempts({"Content-Length": "10"}, (0, b"abc"), gone=True).run()
    assert status == 400
    assert b'"body-truncated"' in body


def test_fewer_bytes_than_announced_are_not_taken_for_whole() -> None:
    assert _Attempts({"Content-Length": "10"}, (0, b"abc")).run()[0] == 400


@pytest.mark.parametrize("length", ["-1", "1e3", "", "0x10"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    assert _Attempts({"Content-Length": length}, (0, b"a")).run()[0] == 422


def test_a_request_without_a_body_passes_through() -> None:
    assert _Attempts({}, (0, b"")).run()[:2] == (200, b"0")


def test_a_handler_may_ask_for_more() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body_of(scope).limit = 500
        await _echo_length(scope, receive, send)

    exchange = _Attempts({"Content-Length": "300"}, (0, b"x" * 300))
    asyncio.run(Intake(app, limit=LIMIT, idle_seconds=1, min_rate=0)(exchange.scope, exchange.receive, exchange.send))
    assert exchange.sent[1]["body"] == b"300"


def test_more_bytes_than_announced_are_never_whole() -> None:
    body = Body(limit=100, announced=2, idle_seconds=1, min_rate=0)
    with pytest.raises(ClientDisconnect):
        body.count({"type": "http.request", "body": b"abc", "more_body": False})
