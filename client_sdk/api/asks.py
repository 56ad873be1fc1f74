"""`ask`, of the client that blocks and of the one that is awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, cast, overload

from client_sdk.api.answered import Answered
from client_sdk.api.asking import OnState, asking
from client_sdk.api.methods import Awaiting, Blocking
from client_sdk.api.questions import AnyQuestion
from client_sdk.api.spoken import Spoken
from client_sdk.api.transport import Call
from study_protocol.study.queries import Query


class Asking(Blocking, Protocol):
    """The requests that `ask` needs of a client that blocks."""

    coordinator_key: str | None
    spoken: Spoken
    sleep: Callable[[float], None]


class AwaitedAsking(Awaiting, Protocol):
    """The requests that `ask` needs of a client that is awaited."""

    coordinator_key: str | None
    spoken: Spoken
    sleep: Callable[[float], Awaitable[None]]


class QueryMixin:
    """A client that blocks, with `ask`."""

    @overload
    def ask(
        self: Asking,
        study: str,
        question: AnyQuestion,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_state: OnState | None = None,
    ) -> Answered: ...
    @overload
    def ask(
        self: Asking,
        study: str,
        question: AnyQuestion,
        *,
        wait: bool,
        timeout: float | None = None,
        on_state: OnState | None = None,
    ) -> Answered | Query: ...
    def ask(
        self: Asking,
        study: str,
        question: AnyQuestion,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_state: OnState | None = None,
    ) -> Answered | Query:
        """Ask all hospitals of a study a question about their patients, and wait for its answer, or its last step's.

        The same question again is the same answer and costs no budget: run the cell of a notebook as often as you like.

            answer = client.ask("registry", {"kind": "count", "noise_multiplier": 6.0})
            answer.frame()

        question  a dictionary with the entries of a question file, the path of one (TOML or JSON), a question or a
                  QueryDocument. docs/statistics.md has every kind. A dictionary or file without `centred` is asked
                  in the centred form where all programs of the study read it. An object is asked as it is
        wait      False: return at once, with a Query where there is no answer yet. Ask again later for the answer
        timeout   seconds to wait. None: until it is answered or has failed. Hospitals' people may take days
        on_state  called with the query whenever it was looked at and has no answer yet

        The answer's signature is verified with `coordinator_key` where one was given, and at a hospital with the key
        pinned at enrolment. Otherwise the key that the coordinator shows is used, which finds damage and not a
        coordinator that lies. `answer.pinned` says which of them was used.

        Raises:
            ConfigurationError: this is no question. Every wrong entry is named.
            ConflictError: `query-overspends` (says what noise would fit), `no-queries`, `study-finished`.
            QueryFailed: it failed. `code` says why, and the message whether asking again helps.
            QueryNotAnswered: not in this time. It goes on waiting at the hospitals.
            AnswerNotSigned: the answer is not the coordinator's own.
        """
        steps = asking(
            study,
            question,
            wait=wait,
            timeout=timeout,
            on_state=on_state,
            known_key=self.coordinator_key,
            spoken=lambda: self.spoken,
        )
        step = next(steps)
        while True:
            reply = (self.send(step)) if isinstance(step, Call) else (self.sleep(step))
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return cast("Answered | Query", end.value)


class AsyncQueryMixin:
    """A client that is awaited, with `ask`."""

    @overload
    async def ask(
        self: AwaitedAsking,
        study: str,
        question: AnyQuestion,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        on_state: OnState | None = None,
    ) -> Answered: ...
    @overload
    async def ask(
        self: AwaitedAsking,
        study: str,
        question: AnyQuestion,
        *,
        wait: bool,
        timeout: float | None = None,
        on_state: OnState | None = None,
    ) -> Answered | Query: ...
    async def ask(
        self: AwaitedAsking,
        study: str,
        question: AnyQuestion,
        *,
        wait: bool = True,
        timeout: float | None = None,
        on_state: OnState | None = None,
    ) -> Answered | Query:
        """Ask and wait without blocking. Arguments, answer and errors are those of `Client.ask`."""
        steps = asking(
            study,
            question,
            wait=wait,
            timeout=timeout,
            on_state=on_state,
            known_key=self.coordinator_key,
            spoken=lambda: self.spoken,
        )
        step = next(steps)
        while True:
            reply = (await self.send(step)) if isinstance(step, Call) else (await self.sleep(step))
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return cast("Answered | Query", end.value)
