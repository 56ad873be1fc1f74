"""The API for programs: `Client` blocks, `AsyncClient` is awaited. Both have the same method for each request.

`client_sdk.api.attempts` says which requests are repeated, and when.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.api.asks import AsyncQueryMixin, QueryMixin
from client_sdk.api.attempts import Attempts, Backoff, Credentials, OnPause, ServerClock
from client_sdk.api.config import Connection
from client_sdk.api.methods import Methods
from client_sdk.api.spoken import Spoken
from client_sdk.api.transport import AsyncTransport, Call, Transport
from client_sdk.errors import ConfigurationError, ConnectionFailed
from study_protocol.wire.signing import request_token

T = TypeVar("T")


class ApiKey:
    """`wrk_<id>_<secret>`, or the token `wrs_<id>_<secret>` of a login. Its repr shows the id alone.

    Raises:
        ConfigurationError: not of that form.
    """

    def __init__(self, key: str) -> None:
        # Into three at most: a secret in base64url may hold underscores itself.
        parts = key.split("_", 2)
        if len(parts) != 3 or parts[0] not in ("wrk", "wrs") or not parts[1] or not parts[2] or not key.isascii():
            raise ConfigurationError("an API key has the form wrk_<id>_<secret>")
        self._key, self.id, self._kind = key, parts[1], parts[0]

    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        return f"Bearer {self._key}"

    def __repr__(self) -> str:
        return f"ApiKey({self._kind}_{self.id}_***)"


@dataclass(frozen=True)
class Signature:
    """A hospital's own signature. `origin` is the coordinator's public origin, for any address that is dialled."""

    key: Ed25519PrivateKey = field(repr=False)
    client: str
    study: str
    origin: str

    def authorization(self, *, method: str, target: str, body: bytes, now: float, token_id: str | None) -> str:
        token = request_token(
            self.key,
            client=self.client,
            study=self.study,
            audience=self.origin,
            method=method,
            url=self.origin + target,
            body_sha256=hashlib.sha256(body).hexdigest(),
            now=now,
            token_id=token_id,
        )
        return f"Bearer {token}"


class _Base:
    def __init__(
        self,
        connection: Connection,
        credentials: Credentials | None,
        clock: ServerClock | None,
        coordinator_key: str | None,
    ) -> None:
        self.connection = connection
        self.credentials = credentials
        self.clock = clock or ServerClock()
        # Its key or fingerprint, as somebody knows it. Answers are verified with it.
        self.coordinator_key = coordinator_key

        # What the last description of a study said of the coordinator.
        self.spoken = Spoken()
        # On the clock's `elapsed`: when the last answer was there.
        self.answered_at = self.clock.elapsed()
        # Told why a request has to be sent again and in how many seconds, and with None that it was answered.
        self.on_pause: OnPause | None = None

    def _attempts(self, call: Call[T]) -> Attempts[T]:
        return Attempts(call, self.credentials, self.clock, Backoff(self.connection.patience_seconds), self.on_pause)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection.url!r}, {self.credentials!r})"


class Client(_Base, Methods, QueryMixin):
    """A client that blocks. Methods raise ApiError, ConnectionFailed, UnexpectedAnswer. Other calls go through `send`.

    coordinator_key: the coordinator's key or fingerprint (`wardround doctor` prints it at a hospital): `ask` verifies
    answers with it, else with the key that the coordinator shows.
    transport, clock, sleep: the network and the time, given by tests.
    """

    def __init__(
        self,
        connection: Connection,
        credentials: Credentials | None = None,
        *,
        coordinator_key: str | None = None,
        transport: Transport | None = None,
        clock: ServerClock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(connection, credentials, clock, coordinator_key)
        self._transport = transport or Transport(connection)
        self.sleep = sleep

    def send(self, call: Call[T]) -> T:
        """Send, repeat where that is safe, and read the answer."""
        exchange = self._attempts(call)
        while True:
            try:
                answer = self._transport.send(call, exchange.headers())
            except ConnectionFailed as error:
                self.sleep(exchange.failed(error))
                continue
            self.spoken = Spoken.within(answer.headers) or self.spoken
            # Before it is read: an error is an answer, too.
            self.answered_at = self.clock.elapsed()
            pause = exchange.answered(answer)
            if pause is None:
                return exchange.result
            self.sleep(pause)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Base, Methods, AsyncQueryMixin):
    """A client without blocking: `await client.study("sepsis")`. In all else it is as `Client`."""

    def __init__(
        self,
        connection: Connection,
        credentials: Credentials | None = None,
        *,
        coordinator_key: str | None = None,
        transport: AsyncTransport | None = None,
        clock: ServerClock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(connection, credentials, clock, coordinator_key)
        self._transport = transport or AsyncTransport(connection)
        self.sleep = sleep

    async def send(self, call: Call[T]) -> T:
        """Send, repeat where that is safe, and read the answer."""
        exchange = self._attempts(call)
        while True:
            try:
                answer = await self._transport.send(call, exchange.headers())
            except ConnectionFailed as error:
                await self.sleep(exchange.failed(error))
                continue
            self.spoken = Spoken.within(answer.headers) or self.spoken
            pause = exchange.answered(answer)
            if pause is None:
                return exchange.result
            await self.sleep(pause)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
