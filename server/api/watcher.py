"""One watcher per process wakes requests that wait for news of a study, and holds no resources while none wait.

Waiting costs a future: no thread, no database session. News is a number per study that only grows. It is told as soon
as it is committed by this process, or heard of another one. For the rest one look serves all requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

Marks = Mapping[str, int]
# Between a look and the wait after it lie milliseconds.
_FRESH_SECONDS = 1.0


class Watcher:
    """Wakes waiters when the mark of their study moves.

    Args:
        read_marks: returns the newest event number of each of these studies. It runs in the thread pool, one call at a
            time.
        interval: seconds between two looks.
        at_once: a look takes less time than another thread, so it is made in the event loop.
    """

    def __init__(
        self, read_marks: Callable[[Collection[str]], Marks], interval: float, *, at_once: bool = False
    ) -> None:
        self._read_marks = read_marks
        self._interval = interval
        self._at_once = at_once
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._since: dict[asyncio.Future[None], int] = {}
        self._looking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # The marks that were told, and when. A request that has just looked and begins to wait must not sleep through
        # them.
        self._latest_marks: dict[str, tuple[int, float]] = {}
        self.closed = False

    @property
    def waiting(self) -> int:
        """Return how many requests wait now. Safe from any thread."""
        return len(self._since)

    async def wait(self, study: str, since: int, seconds: float) -> bool:
        """Return True as soon as the study's mark is above `since`. False after `seconds` or when the process stops."""
        if self.closed or seconds <= 0:
            return False
        self._loop = asyncio.get_running_loop()
        future = self._loop.create_future()
        self._since[future] = since
        self._waiting.setdefault(study, set()).add(future)
        # After it is in the set, and not before: what is told from here on finds it.
        mark, at = self._latest_marks.get(study, (0, 0.0))
        # Not for ever: of a database that went back to an older state, what was told before is no news.
        if mark > since and time.monotonic() - at < _FRESH_SECONDS:
            future.set_result(None)
        # The look ends by itself when no request waits, so the first one starts it again.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait_for(future, seconds)
            # Closing also fulfils the future, but that is no news.
            return not self.closed
        except TimeoutError:
            return False
        finally:
            del self._since[future]
            self._waiting[study].discard(future)
            if not self._waiting[study]:
                del self._waiting[study]

    def tell(self, study: str, mark: int) -> None:
        """Note that the study's newest event has this number. Safe from any thread."""
        self._latest_marks[study] = mark, time.monotonic()
        # No request has waited yet, or the process is stopping.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake, {study: mark})

    def close(self) -> None:
        """Send every waiter home: the process is stopping."""
        self.closed = True
        for future in self._since:
            if not future.done():
                future.set_result(None)

    async def _look(self) -> None:
        while self._waiting and not self.closed:
            # First the pause: every waiter has just looked for itself.
            await asyncio.sleep(self._interval)
            try:
                studies = tuple(self._waiting)
                marks = (
                    self._read_marks(studies) if self._at_once else await run_in_threadpool(self._read_marks, studies)
                )
            except Exception as error:  # noqa: BLE001 - a waiter must hear that the database is away, whatever it raised
                self._fail(error)
                continue
            self._wake(marks)

    def _wake(self, marks: Marks) -> None:
        for study, mark in marks.items():
            for future in self._waiting.get(study, ()):
                if mark > self._since[future] and not future.done():
                    future.set_result(None)

    def _fail(self, error: Exception) -> None:
        for future in self._since:
            if not future.done():
                future.set_exception(error)
