"""What many requests ask the database in the same moment is asked in one look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

K = TypeVar("K")
V = TypeVar("V")
# More would keep the first of them waiting for the last.
_MOST = 64


class Lookups(Generic[K, V]):
    """Questions that come while a look is under way are answered by the next one; nobody waits for company.

    Nothing is remembered: what is answered was read after it was asked for.

    Args:
        at_once: a look takes less time than another thread, so that everybody makes its own.
        look: the answers to some questions, in their order, an exception where one has none; runs in the thread pool,
            one call at a time.
    """

    def __init__(self, look: Callable[[Sequence[K]], Sequence[V | Exception]], *, at_once: bool) -> None:
        self._look = look
        self._at_once = at_once
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def ask(self, question: K) -> V:
        """Raises whatever there is instead of an answer."""
        if self._at_once:
            (answer,) = self._look((question,))
            if isinstance(answer, Exception):
                raise answer
            return answer
        future = self._waiting.get(question)
        if future is None:
            future = self._waiting[question] = asyncio.get_running_loop().create_future()
        # The look ends by itself when nobody waits, so whoever comes first starts it again.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._answer())
        # Others may wait for the same.
        return await asyncio.shield(future)

    async def _answer(self) -> None:
        while self._waiting:
            questions = tuple(self._waiting)[:_MOST]
            futures = [self._waiting.pop(question) for question in questions]
            try:
                answers = await run_in_threadpool(self._look, questions)
            except Exception as error:  # noqa: BLE001 - whoever asked must hear that the database is away
                answers = [error] * len(questions)
            for future, answer in zip(futures, answers, strict=True):
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
