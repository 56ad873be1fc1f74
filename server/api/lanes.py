"""Limits on how much of this process one caller may use at once, so that the others are served meanwhile.

A request that needs one of the process's few threads first takes a place in its caller's lane. Some places of a lane
go on at once, and as many more wait in order and hold no thread. Further requests are told to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from server.api.problems import RETRY_AFTER_SECONDS, ApiProblem

# Of the framework's forty threads.
THREADS_OF_ONE = 8
# Limits of long computations, on processors that all callers share.
HEAVY_OF_ONE, HEAVY_OF_ALL = 2, 2
STREAMS_OF_ONE = 16
LOGINS_OF_ALL = 8


@dataclass
class _Places:
    turns: asyncio.Semaphore
    used: int = 0


@dataclass
class Lane:
    """Places of each caller: `at_once` go on, `waiting` more wait for their turn. For one event loop."""

    at_once: int
    waiting: int
    noun: str
    _callers: dict[str, _Places] = field(default_factory=dict[str, _Places])

    def require_room(self, caller: str) -> None:
        """Raises ApiProblem `too-many-requests`: every place of this caller is taken."""
        places = self._callers.get(caller)
        if places is not None and places.used >= self.at_once + self.waiting:
            raise ApiProblem(
                "too-many-requests",
                f"the same caller has {places.used} {self.noun} here already: send the same request again later, and "
                "fewer at once",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncGenerator[None]:
        """Hold a place of this caller's, once it is its turn. Raises as `require_room`."""
        self.require_room(caller)
        places = self._callers.setdefault(caller, _Places(asyncio.Semaphore(self.at_once)))
        places.used += 1
        try:
            async with places.turns:
                yield
        finally:
            places.used -= 1
            if not places.used:
                del self._callers[caller]


class Lanes:
    """The lanes of one process.

    threads  requests that are carried out in a thread
    heavy    those of them that compute for long. Heavy requests of all callers take turns, too
    streams  event streams
    logins   questions to the identity provider, for people who are not known yet. All of them are one caller
    """

    def __init__(self) -> None:
        self.threads = Lane(THREADS_OF_ONE, 120, "requests")
        self.heavy = Lane(HEAVY_OF_ONE, 6, "requests that take long")
        self.streams = Lane(STREAMS_OF_ONE, 0, "event streams")
        self.logins = Lane(LOGINS_OF_ALL, 24, "logins")
        self._heavy_of_all = asyncio.Semaphore(HEAVY_OF_ALL)

    @asynccontextmanager
    async def thread(
        self, caller: str, *, heavy: bool, ready: Callable[[], Awaitable[object]] | None = None
    ) -> AsyncGenerator[None]:
        """Hold a place for the caller while a thread works for it.

        ready  a step that depends on the caller, such as the end of its body: it is awaited before a
               shared place is taken

        Raises:
            ApiProblem: `too-many-requests`. Errors of `ready` pass through.
        """
        if not heavy:
            async with self.threads.place(caller):
                yield
            return
        # First the caller's own turn: a caller with many requests keeps the others waiting with two of them at most.
        async with self.heavy.place(caller):
            if ready is not None:
                await ready()
            async with self._heavy_of_all:
                yield
