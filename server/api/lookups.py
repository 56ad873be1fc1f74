"""What many requests ask the database in the same moment is asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

K = TypeVar("K")
V = TypeVar("V")
# More would keep the first of them waiting for the last.
_MAX_BATCH = 64
# One that meets a broken connection keeps nobody else waiting.
_AT_ONCE = 4


class Lookups(Generic[K, V]):
    """Questions that come while looks are under way are answered by the next one; nobody waits for company.

    Nothing is remembered: what is answered was read after it was asked for.

    Args:
        look: the answers to some questions, in their order, an exception where one has none; runs in the thread pool.
        at_once: a look takes less time than another thread: everybody makes its own, where it is.
    """

    def __init__(self, look: Callable[[Sequence[K]], Sequence[V | Exception]], *, at_once: bool) -> None:
        self._look = look
        self._at_once = at_once
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._looking: set[asyncio.Task[None]] = set()

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
            # A look ends by itself when nobody waits. In a context of its own: the next one is for others.
            if len(self._looking) < _AT_ONCE:
                task = asyncio.create_task(self._answer(), context=Context())
                self._looking.add(task)
                task.add_done_callback(self._looking.discard)
        # Others may wait for the same.
        return await asyncio.shield(future)

    async def _answer(self) -> None:
        while self._waiting:
            questions = tuple(self._waiting)[:_MAX_BATCH]
            futures = [self._waiting.pop(question) for question in questions]
            try:
                answers = await run_in_threadpool(self._look, questions)
            except Exception as error:  # noqa: BLE001 - whoever asked must hear that the database is away
                answers = [error] * len(questions)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
            for future, answer in zip(futures, answers, strict=True):
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
