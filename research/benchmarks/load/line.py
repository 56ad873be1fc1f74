"""One kept connection that speaks HTTP/1.1 and costs next to nothing, so that a thousand fit on one core."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LoadAnswer:
    """Status, body, headers under lower-case names; seconds from the request's first byte to the answer's last."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    seconds: float

    @property
    def code(self) -> str:
        """What a problem document calls it, or the start of whatever it is."""
        _, marker, rest = self.body.partition(b'"code":"')
        return (rest.partition(b'"')[0] if marker else self.body[:80]).decode(errors="replace")


class ClosedUnanswered(ConnectionError):
    """The other end closed the connection before a byte of the answer. `how`: by an end of file or a reset."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


@dataclass
class LoadConnection:
    """A connection to `host`:`port`; opened when it is first used, and again after it was closed.

    idle_seconds  a connection unused for longer is not used again; as long as hospitals' own library keeps one
    troubles      how often what went wrong, by kind: shared by all lines of a load
    """

    host: str
    port: int
    idle_seconds: float = 5.0
    troubles: Counter[str] = field(default_factory=Counter[str])
    requests: int = 0
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    _used: float = 0.0

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> LoadAnswer:
        """Once; on a connection that the other end closed unanswered, once more on a new one: GET and PUT only."""
        try:
            return await self._once(method, target, headers, body)
        except ClosedUnanswered as error:
            self.troubles[f"closed unanswered ({error.how})"] += 1
            if method not in ("GET", "PUT"):
                raise
        return await self._once(method, target, headers, body)

    async def _once(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> LoadAnswer:
        begun = time.perf_counter()
        if self._streams is not None and (begun - self._used > self.idle_seconds or self._streams[0].at_eof()):
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        reader, writer = self._streams
        header_text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        length = f"Content-Length: {len(body)}\r\n" if body or method not in ("GET", "HEAD") else ""
        self.requests += 1
        try:
            writer.write(
                f"{method} {target} HTTP/1.1\r\nHost: {self.host}\r\n{header_text}{length}\r\n".encode() + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            answer = await self._answer(reader, head, begun)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self.close()
            partial = getattr(error, "partial", b"")
            if partial:
                raise
            raise ClosedUnanswered(type(error).__name__) from error
        self._used = time.perf_counter()
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    async def _answer(self, reader: asyncio.StreamReader, head: bytes, begun: float) -> LoadAnswer:
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await self._body(reader, headers)
        return LoadAnswer(int(first.split(" ", 2)[1]), body, headers, time.perf_counter() - begun)

    async def _body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(headers.get("content-length", "0")))
        pieces: list[bytes] = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return b"".join(pieces)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
