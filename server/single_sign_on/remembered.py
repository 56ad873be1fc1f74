"""A document of the provider that is kept for a while, so that a login does not fetch it each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from server.single_sign_on.errors import ProviderUnavailable, SingleSignOnMisconfigured

T = TypeVar("T")
KEPT_SECONDS = 3600.0
# Between two fetches outside the turn, so that tokens with random key ids do not make many of them.
RENEWAL_SECONDS = 30.0
# After a fetch that failed, so that waiting browsers do not repeat a long timeout.
RETRY_SECONDS = 3.0


class RememberedDocument(Generic[T]):
    """Fetches a document when it is wanted and not fresh. Concurrent callers wait for one fetch.

    Args:
        fetch: Returns the document. Raises SingleSignOnError.
        clock: Returns the time in seconds.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], clock: Callable[[], float]) -> None:
        self._fetch, self._clock = fetch, clock
        self._lock = asyncio.Lock()
        self._document: tuple[float, T] | None = None
        self._renewed_at: float | None = None
        self._failure: tuple[float, ProviderUnavailable | SingleSignOnMisconfigured] | None = None

    async def get(self) -> T:
        """Return the document, at most an hour old. Raises as `fetch`."""
        async with self._lock:
            if self._document is not None and self._within(self._document[0], KEPT_SECONDS):
                return self._document[1]
            return await self._fetch_now()

    async def renew(self) -> T:
        """Fetch the document again, unless that was done within the last seconds. Raises as `fetch`."""
        async with self._lock:
            if self._document is not None and self._within(self._renewed_at, RENEWAL_SECONDS):
                return self._document[1]
            self._renewed_at = self._clock()
            return await self._fetch_now()

    async def _fetch_now(self) -> T:
        if self._failure is not None and self._within(self._failure[0], RETRY_SECONDS):
            raise type(self._failure[1])(str(self._failure[1]))
        try:
            document = await self._fetch()
        except (ProviderUnavailable, SingleSignOnMisconfigured) as error:
            self._failure = (self._clock(), error)
            raise
        self._document = (self._clock(), document)
        return document

    def _within(self, moment: float | None, seconds: float) -> bool:
        # A clock that was set back makes nothing fresh.
        return moment is not None and 0 <= self._clock() - moment < seconds
