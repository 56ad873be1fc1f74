"""Tensor bodies on their way in and out: streamed, hashed on the fly, never held whole."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from server.api.intake import body_of
from server.api.problems import ApiProblem
from server.domain.ports import Blobs, Incoming
from server.services.views import StoredModel

MEDIA_TYPE = "application/octet-stream"
PIECE_BYTES = 1 << 20
_SINGLE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

BODY = {"requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}}


@asynccontextmanager
async def received(request: Request, blobs: Blobs, limit: int) -> AsyncGenerator[Incoming]:
    """The whole body of at most `limit` bytes in a temporary file, hashed; gone at the end unless it is kept.

    Raises:
        ApiProblem: `body-too-large`, before reading if the length is announced; `body-too-slow`.
        ClientDisconnect: the body ended early.
    """
    body = body_of(request.scope)
    body.limit = limit
    body.require_announced_fits()
    with blobs.receive(limit) as incoming:
        await _pump(request, incoming)
        yield incoming


async def _pump(request: Request, incoming: Incoming) -> None:
    """Writes one piece in a thread while the next one is collected: two pieces in memory, whatever the size."""
    pieces, size = list[bytes](), 0
    writing: asyncio.Future[None] | None = None
    try:
        async for piece in request.stream():
            pieces.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(run_in_threadpool(_write, incoming, pieces))
                pieces, size = [], 0
    finally:
        # The file must not be closed under the thread that writes to it.
        if writing is not None:
            await writing
    await run_in_threadpool(_write, incoming, pieces)


def _write(incoming: Incoming, pieces: list[bytes]) -> None:
    for piece in pieces:
        incoming.write(piece)


async def discarded(request: Request, size: int) -> None:
    """Read a repeated body to its end: whoever is cut off in the middle of sending would try for ever."""
    body_of(request.scope).limit = size
    async for _ in request.stream():
        pass


def model_answer(request: Request, model: StoredModel) -> Response:
    """A model with its ETag: 304 for who has it, 206 for one range, 416 for a range outside."""
    size, etag = model.info.bytes, f'"{model.info.sha256}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    headers["X-Model-Version"] = str(model.info.version)
    if etag in _tags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    start, stop, status = 0, size, 200
    wanted = _SINGLE_RANGE.fullmatch(request.headers.get("range", ""))
    if wanted and request.headers.get("if-range", etag) == etag:
        start, stop = _bounds(wanted[1], wanted[2], size)
        status = 206
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    headers["Content-Length"] = str(stop - start)
    return StreamingResponse(_pieces(model.path, start, stop), status, headers, MEDIA_TYPE)


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """[start, stop) of a range header's two numbers; a missing first one counts from the end (RFC 9110, 14.1.2)."""
    start = int(first) if first else max(0, size - int(last or 0))
    stop = min(size, int(last) + 1) if first and last else size
    if start >= stop:
        raise ApiProblem(
            "range-not-satisfiable", "ask for bytes of the model", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, stop


def _pieces(path: Path, start: int, stop: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while start < stop:
            piece = file.read(min(PIECE_BYTES, stop - start))
            if not piece:
                raise EOFError(f"a stored model is shorter than recorded by {stop - start} bytes")
            start += len(piece)
            yield piece
