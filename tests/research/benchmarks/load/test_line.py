"""The load's own connection: answers of every framing, and what a hospital would send again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from research.benchmarks.load.line import ClosedUnanswered, LoadConnection

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Some: Thing\r\n\r\nok"


def _with(talk: Talk, ask: Callable[[LoadConnection], Awaitable[None]]) -> LoadConnection:
    """What `ask` does on a line to a server that talks like this."""

    over: list[asyncio.Task[None]] = []

    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.current_task())  # type: ignore[arg-type]
        await talk(reader, writer)
        # Until the other end has closed its side, too.
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async def scenario() -> LoadConnection:
        async with await asyncio.start_server(whole, "127.0.0.1", 0) as server:
            line = LoadConnection("127.0.0.1", server.sockets[0].getsockname()[1])
            await ask(line)
            line.close()
            await asyncio.gather(*over)
            return line

    return asyncio.run(scenario())


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    return head + await reader.readexactly(length)


def test_a_request_is_sent_whole_and_its_answer_read_whole() -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (OK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"):
            seen.append(await _request(reader))
            writer.write(answer)
        writer.close()

    async def ask(line: LoadConnection) -> None:
        first = await line.send("PUT", "/a", {"Authorization": "Bearer x"}, b"body")
        assert (first.status, first.body, first.headers["x-some"]) == (200, b"ok", "Thing")
        assert (await line.send("GET", "/b", {})).body == b"abcde"

    assert _with(talk, ask).requests == 2
    assert seen[0].startswith(b"PUT /a HTTP/1.1\r\n")
    assert seen[0].endswith(b"Authorization: Bearer x\r\nContent-Length: 4\r\n\r\nbody")
    assert seen[1].startswith(b"GET /b ")


def test_a_connection_closed_unanswered_is_counted_and_only_what_may_be_is_sent_again() -> None:
    opened: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(1)
        await _request(reader)
        if len(opened) != 2:
            writer.close()
            return
        writer.write(OK)

    async def ask(line: LoadConnection) -> None:
        with pytest.raises(ClosedUnanswered):
            await line.send("POST", "/once", {}, b"x")
        assert (await line.send("GET", "/again", {})).status == 200

    line = _with(talk, ask)
    assert sum(line.troubles.values()) == 1
    assert len(opened) == 2


def test_a_problem_is_named_by_its_code() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        body = b'{"type":"about:blank","code":"study-finished","detail":"over"}'
        writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
        writer.close()

    async def ask(line: LoadConnection) -> None:
        answer = await line.send("GET", "/", {})
        assert (answer.status, answer.code) == (409, "study-finished")

    _with(talk, ask)
