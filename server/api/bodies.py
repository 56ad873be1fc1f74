"""Bodies of requests and answers: streamed, hashed on the fly, never held whole.

A body that announces too much is refused before a byte of it is read. One that does not announce its length is
counted. One that trickles in is cut off. One that ends early is never taken for whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.problems import ApiProblem
from server.db.blobs import Blobs, IncomingFile, OpenedFile
from server.services.coordinator import Written
from server.services.views import StoredModel

_SCOPE_KEY = "wardround.body"
_NO_NUMBER = -1
T = TypeVar("T")


@dataclass
class Body:
    """The body of one request as it is read. `limit` may be moved until the first byte is asked for.

    limit, announced, received  bytes. announced is None without a Content-Length
    idle_seconds, min_rate      as in `server.config.Settings`. A min_rate of 0 asks for no rate
    started_at                  seconds on the event loop's clock
    """

    limit: int
    announced: int | None
    idle_seconds: float
    min_rate: int
    received: int = 0
    complete: bool = False
    started_at: float = field(default=0.0)

    def require_announced_fits(self) -> None:
        """Raises ApiProblem `invalid-request` (a length that is no number), `body-too-large`."""
        if self.announced == _NO_NUMBER:
            raise ApiProblem("invalid-request", "Content-Length is a whole number of bytes")
        if self.announced is not None and self.announced > self.limit:
            raise ApiProblem("body-too-large", f"at most {self.limit} bytes are read here")

    def count(self, message: Message) -> None:
        """Take a piece into account.

        Raises:
            ApiProblem: `body-too-large`.
            ClientDisconnect: it is the last piece, and the whole is not as long as announced.
        """
        self.received += len(message.get("body", b""))
        if self.received > self.limit:
            raise ApiProblem("body-too-large", f"at most {self.limit} bytes are read here")
        self.complete = not message.get("more_body", False)
        if self.complete and self.announced is not None and self.received != self.announced:
            # Whichever of the two numbers is wrong, this is not the body that was meant.
            raise ClientDisconnect

    def latest(self, now: float) -> float:
        """Return the time by which the next piece is due.

        It is soon after this one, and the whole comes no slower than the least rate.
        """
        if self.min_rate == 0:
            return now + self.idle_seconds
        return min(now, self.started_at + self.received / self.min_rate) + self.idle_seconds


class Intake:
    """Guards the body of every request. A handler that streams asks for more by moving its limit.

    Sits outside `Problems`, which answers what this raises.
    """

    def __init__(self, app: ASGIApp, *, limit: int, idle_seconds: float, min_rate: int) -> None:
        self._app = app
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._min_rate = min_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        headers = Headers(scope=scope)
        body = Body(self._limit, _announced(headers), self._idle_seconds, self._min_rate, started_at=clock())
        # With neither header a request has no body (RFC 9112, 6.3).
        body.complete = body.announced is None and "transfer-encoding" not in headers
        scope[_SCOPE_KEY] = body

        async def guarded() -> Message:
            if body.complete:
                # After the body only a disconnect can come, and that may be waited for as long as the answer takes.
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
            # A sender whose body is not read any more is told to stop.
            if message["type"] == "http.response.start" and not body.complete and body.announced != 0:
                message.setdefault("headers", [])
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        await self._app(scope, guarded, closing)


def body_of(scope: Scope) -> Body:
    """Return the guarded body of this request."""
    return cast(Body, scope[_SCOPE_KEY])


def _announced(headers: Headers) -> int | None:
    value = headers.get("content-length")
    if value is None:
        return None
    return int(value) if value.isdecimal() else _NO_NUMBER


MEDIA_TYPE = "application/octet-stream"
PIECE_BYTES = 1 << 20
# 18 digits fit every size. A longer number is not read at all.
_SINGLE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

BODY = {"requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}}


def or_else(model: type[BaseModel], description: str) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's form of a write that may be answered with 200, too: it was here already, or is replaced."""
    return {200: {"model": model, "description": description}}


def answered(response: Response, written: Written[T]) -> T:
    """Return the body of a write that may be repeated, with 201 when it is new and 200 when it was here."""
    response.status_code = 201 if written.created else 200
    return written.body


def as_json(view: BaseModel | None, status: int = 200) -> Response:
    """Return the document as it is, or 204 for None. The framework would check its own answer, and in a thread."""
    return json_answer(None if view is None else view.model_dump_json().encode(), status)


def json_answer(content: bytes | None, status: int = 200) -> Response:
    """Return JSON that was made before, or 204 for None."""
    if content is None:
        return Response(status_code=204)
    return Response(content, status, media_type="application/json")


@asynccontextmanager
async def received(request: Request, blobs: Blobs, limit: int) -> AsyncGenerator[IncomingFile]:
    """Yield the whole body of at most `limit` bytes in a temporary file, hashed. It is removed at the end unless kept.

    Raises:
        ApiProblem: `body-too-large`, before reading if the length is announced, or `body-too-slow`.
        ClientDisconnect: the body ended early.
    """
    body = body_of(request.scope)
    body.limit = limit
    body.require_announced_fits()
    with blobs.receive(limit) as incoming:
        await _pump(request, incoming)
        yield incoming


async def _pump(request: Request, incoming: IncomingFile) -> None:
    """Write one piece in a thread while the next one is collected: two pieces in memory, however long the body is."""
    pieces, size = list[bytes](), 0
    writing: asyncio.Future[None] | None = None
    try:
        async for piece in request.stream():
            pieces.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                # One writer at a time: the file's hash depends on the order.
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(run_in_threadpool(_write, incoming, pieces))
                pieces, size = [], 0
    finally:
        # The file must not be closed under the thread that writes to it.
        if writing is not None:
            await writing
    await run_in_threadpool(_write, incoming, pieces)


def _write(incoming: IncomingFile, pieces: list[bytes]) -> None:
    for piece in pieces:
        incoming.write(piece)


async def discarded(request: Request, size: int) -> None:
    """Read a repeated body to its end: a client that is cut off in the middle of sending would try for ever."""
    body_of(request.scope).limit = size
    async for _ in request.stream():
        pass


def model_answer(request: Request, model: StoredModel) -> Response:
    """Return a model with its ETag: 304 for a client that has it, 206 for one range, 416 for a range outside."""
    size, etag = model.info.bytes, f'"{model.info.sha256}"'
    # A model is for members only, and `latest` moves: no shared cache, and asked about before every use.
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    headers["X-Model-Version"] = str(model.info.version)
    if etag in _tags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    start, stop, status = 0, size, 200
    # Any other form of Range is ignored, as RFC 9110, 14.2 allows: the whole model answers it.
    single_range = _SINGLE_RANGE.fullmatch(request.headers.get("range", ""))
    if single_range and request.headers.get("if-range", etag) == etag:
        start, stop = _bounds(single_range[1], single_range[2], size)
        status = 206
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    headers["Content-Length"] = str(stop - start)
    pieces = _pieces(model.open(), start, stop)
    if stop - start <= PIECE_BYTES:
        # One piece: a stream would go to another thread for it, and back.
        return Response(b"".join(pieces), status, headers, MEDIA_TYPE)
    return StreamingResponse(pieces, status, headers, MEDIA_TYPE)


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Return [start, stop) of a range header. Without a first number it counts from the end (RFC 9110, 14.1.2)."""
    start = int(first) if first else max(0, size - int(last or 0))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= stop:
        raise ApiProblem(
            "range-not-satisfiable", "ask for bytes of the model", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, stop


def _pieces(file: OpenedFile, start: int, stop: int) -> Iterator[bytes]:
    with file:
        while start < stop:
            piece = file.read(start, min(PIECE_BYTES, stop - start))
            if not piece:
                # The length is announced already: only a broken connection tells the caller that this was not all.
                raise EOFError(f"a stored model is shorter than recorded by {stop - start} bytes")
            start += len(piece)
            yield piece
