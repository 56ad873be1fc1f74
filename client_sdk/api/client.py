"""The API for programs: `Client` blocks and has a method per request; `AsyncClient` sends the same calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Self, TypeVar

from client_sdk.api import calls
from client_sdk.api.attempts import Attempts, Backoff, Credentials, ServerClock
from client_sdk.api.calls import Action, Call, Version
from client_sdk.api.config import Connection
from client_sdk.api.transport import AsyncTransport, Transport
from client_sdk.errors import ConnectionFailed
from client_sdk.protocol.study import messages

T = TypeVar("T")


class _Base:
    def __init__(self, connection: Connection, credentials: Credentials | None, clock: ServerClock | None) -> None:
        self.connection = connection
        self.credentials = credentials
        self.clock = clock or ServerClock()

    def _attempts(self, call: Call[T]) -> Attempts[T]:
        return Attempts(call, self.credentials, self.clock, Backoff(self.connection.patience_seconds))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection.url!r}, {self.credentials!r})"


class Client(_Base):
    """Blocking. Methods raise ApiError, ConnectionFailed, UnexpectedAnswer; any other call goes through `send`.

    transport, clock, sleep: the network and the time, given by tests.
    """

    def __init__(
        self,
        connection: Connection,
        credentials: Credentials | None = None,
        *,
        transport: Transport | None = None,
        clock: ServerClock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(connection, credentials, clock)
        self._transport = transport or Transport(connection)
        self.sleep = sleep

    def send(self, call: Call[T]) -> T:
        """Send, repeat where that is safe, and read the answer."""
        exchange = self._attempts(call)
        while True:
            try:
                answer = self._transport.send(exchange.request())
            except ConnectionFailed as error:
                self.sleep(exchange.failed(error))
                continue
            pause = exchange.answered(answer)
            if pause is None:
                return exchange.result
            self.sleep(pause)

    def create_study(self, study: messages.StudyCreate) -> messages.Study:
        return self.send(calls.create_study(study))

    def studies(self, after: str | None = None) -> messages.StudyList:
        return self.send(calls.studies(after))

    def study(self, name: str) -> messages.Study:
        return self.send(calls.study(name))

    def move_study(self, name: str, action: Action) -> messages.Study:
        return self.send(calls.move_study(name, action))

    def put_initial_model(self, name: str, body: bytes) -> messages.ModelInfo:
        return self.send(calls.put_initial_model(name, body))

    def invite(self, name: str, invitation: messages.InvitationCreate) -> messages.Invitation:
        return self.send(calls.invite(name, invitation))

    def enrol(self, request: messages.EnrolmentRequest) -> messages.Enrolment:
        return self.send(calls.enrol(request))

    def roster(self, name: str, round: int | None = None) -> messages.Roster:
        return self.send(calls.roster(name, round))

    def rotate_key(self, name: str, client: str, rotation: messages.KeyRotation) -> None:
        self.send(calls.rotate_key(name, client, rotation))

    def leave(self, name: str, client: str, how: Literal["revoked", "withdrawn"]) -> None:
        self.send(calls.leave(name, client, how))

    def assignment(self, name: str, wait_seconds: float = calls.POLL_SECONDS) -> messages.Assignment | None:
        return self.send(calls.assignment(name, wait_seconds))

    def model(self, name: str, version: Version = "latest", *, largest: int = calls.LARGEST_MODEL) -> bytes:
        return self.send(calls.model(name, version, largest=largest))

    def put_update(self, name: str, round: int, client: str, body: bytes) -> messages.UpdateReceipt:
        return self.send(calls.put_update(name, round, client, body))

    def put_refusal(self, name: str, round: int, client: str, refusal: messages.Refusal) -> None:
        self.send(calls.put_refusal(name, round, client, refusal))

    def put_metrics(self, name: str, version: int, metrics: messages.Metrics) -> None:
        self.send(calls.put_metrics(name, version, metrics))

    def budget(self, name: str) -> messages.BudgetStatement:
        return self.send(calls.budget(name))

    def ledger(self, name: str, after: int = 0, limit: int | None = None) -> messages.LedgerPage:
        return self.send(calls.ledger(name, after, limit))

    def rounds(self, name: str, after: str | None = None) -> messages.RoundList:
        return self.send(calls.rounds(name, after))

    def health(self, what: Literal["livez", "readyz"] = "readyz") -> Mapping[str, str]:
        return self.send(calls.health(what))

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Base):
    """Without blocking: `await client.send(calls.study("sepsis"))`; `client_sdk.api.calls` lists every request."""

    def __init__(
        self,
        connection: Connection,
        credentials: Credentials | None = None,
        *,
        transport: AsyncTransport | None = None,
        clock: ServerClock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(connection, credentials, clock)
        self._transport = transport or AsyncTransport(connection)
        self.sleep = sleep

    async def send(self, call: Call[T]) -> T:
        """Send, repeat where that is safe, and read the answer."""
        exchange = self._attempts(call)
        while True:
            try:
                answer = await self._transport.send(exchange.request())
            except ConnectionFailed as error:
                await self.sleep(exchange.failed(error))
                continue
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
