"""A connection that its client may still use is not closed under a request that is on its way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpcore
import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from server.app import KEEP_ALIVE_SECONDS, server_config
from server.config import Settings

REQUEST = b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n"
# What Caddy and nginx keep to whoever is behind them, unless they are told otherwise.
PROXIES = (120.0, 60.0)


async def _empty(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


class _Clock(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@contextmanager
def _connected(config: uvicorn.Config) -> Iterator[tuple[_Clock, socket.socket]]:
    """A connection to what uvicorn makes of `config`, on a loop that runs only when it is told to."""
    config.load()
    state, loop = uvicorn.server.ServerState(), _Clock()
    made = lambda: config.http_protocol_class(config, state, {}, loop)  # type: ignore[call-arg,misc]  # noqa: E731
    server = loop.run_until_complete(loop.create_server(made, "127.0.0.1", 0))
    try:
        with socket.create_connection(server.sockets[0].getsockname(), timeout=30) as line:
            yield loop, line
    finally:
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()


def _answered(loop: _Clock, line: socket.socket) -> bytes:
    """What comes back, while the loop runs."""
    return loop.run_until_complete(loop.run_in_executor(None, line.recv, 4096))


def _ask_after(idle_seconds: float, config: uvicorn.Config) -> bytes:
    """The answer to a request that arrives while the loop is about to do everything that is due by then."""
    with _connected(config) as (loop, line):
        line.sendall(REQUEST)
        assert _answered(loop, line).startswith(b"HTTP/1.1 204")
        loop.ahead = idle_seconds
        # Behind the loop's look at its sockets, before what is due: as on a busy coordinator, where that takes long.
        loop.call_soon(line.sendall, REQUEST)
        return _answered(loop, line)


@pytest.mark.parametrize("idle_seconds", [httpx.Limits().keepalive_expiry, *PROXIES])
def test_a_request_on_a_connection_as_old_as_its_client_keeps_it_is_answered(idle_seconds: float) -> None:
    config = server_config(_empty, Settings())
    assert _ask_after(idle_seconds, config).startswith(b"HTTP/1.1 204")


def test_a_coordinator_that_lets_go_first_resets_the_request() -> None:
    """What happens with uvicorn's own 5 seconds, which are the hospital's, too."""
    config = server_config(_empty, Settings())
    config.timeout_keep_alive = 5
    with pytest.raises(ConnectionResetError):
        _ask_after(5.0, config)


def test_hospitals_let_go_of_an_unused_connection_first() -> None:
    transport = Transport(Connection(url="http://127.0.0.1:1"))
    pool = transport._http._transport._pool  # type: ignore[attr-defined]  # pyright: ignore
    assert isinstance(pool, httpcore.ConnectionPool)
    assert pool._keepalive_expiry is not None  # pyright: ignore
    assert pool._keepalive_expiry < min(PROXIES) < max(PROXIES) < KEEP_ALIVE_SECONDS  # pyright: ignore
    transport.close()


def test_a_stranger_s_headers_are_cut_off_at_64_kib() -> None:
    """Not a question of what else is installed: uvicorn would choose a parser without that limit where it finds it."""
    config = server_config(_empty, Settings())
    assert config.http == "h11"
    with _connected(config) as (loop, line):
        line.sendall(b"GET /livez HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * 65_536)
        assert _answered(loop, line).startswith(b"HTTP/1.1 400")
