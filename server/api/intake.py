"""How much of a body is read, and how slowly it may come.

A body that announces too much is refused before a byte of it is read; one that does not announce its length is
counted; one that trickles in is cut off; one that ends early is never taken for whole.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.problems import ApiProblem

_SCOPE_KEY = "wardround.body"
_NO_NUMBER = -1


@dataclass
class Body:
    """The body of one request as it is read. `limit` may be moved until the first byte is asked for."""

    limit: int
    announced: int | None
    idle_seconds: float
    least_rate: int
    received: int = 0
    complete: bool = False
    started_at: float = field(default=0.0)

    def require_announced_fits(self) -> None:
        if self.announced == _NO_NUMBER:
            raise ApiProblem("invalid-request", "Content-Length is a whole number of bytes")
        if self.announced is not None and self.announced > self.limit:
            raise ApiProblem("body-too-large", f"at most {self.limit} bytes are read here")

    def count(self, message: Message) -> None:
        self.received += len(message.get("body", b""))
        if self.received > self.limit:
            raise ApiProblem("body-too-large", f"at most {self.limit} bytes are read here")
        self.complete = not message.get("more_body", False)
        if self.complete and self.announced is not None and self.received != self.announced:
            raise ClientDisconnect

    def latest(self, now: float) -> float:
        """When the next piece must be here: soon after this one, and the whole no slower than the least rate."""
        if self.least_rate == 0:
            return now + self.idle_seconds
        return min(now, self.started_at + self.received / self.least_rate) + self.idle_seconds


class Intake:
    """Guards the body of every request. A handler that streams asks for more by moving its limit.

    Sits outside `Problems`, which answers what this raises.
    """

    def __init__(self, app: ASGIApp, *, limit: int, idle_seconds: float, least_rate: int) -> None:
        self._app = app
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._least_rate = least_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        body = Body(self._limit, _announced(scope), self._idle_seconds, self._least_rate, started_at=clock())
        body.complete = body.announced is None and not _is_chunked(scope)
        scope[_SCOPE_KEY] = body

        async def guarded() -> Message:
            if body.complete:
                return await receive()
            body.require_announced_fits()
            try:
                async with asyncio.timeout_at(body.latest(clock())):
                    message = await receive()
            except TimeoutError:
                raise ApiProblem("body-too-slow", "send the body without pauses, or over a faster line") from None
            if message["type"] == "http.request":
                body.count(message)
            return message

        async def closing(message: Message) -> None:
            # Whoever still sends a body that nobody will read is told to stop.
            if message["type"] == "http.response.start" and not body.complete and body.announced != 0:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, guarded, closing)


def body_of(scope: Scope) -> Body:
    """The guarded body of this request."""
    return cast(Body, scope[_SCOPE_KEY])


def _announced(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else _NO_NUMBER
    return None


def _is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])
