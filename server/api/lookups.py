"""Batches of database lookups: requests that ask in the same moment are answered by one question."""

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
# A question that meets a broken connection keeps no other waiting.
_AT_ONCE = 4


class Lookups(Generic[K, V]):
    """Lookups in batches: questions that come while looks are under way are answered by the next look, without a delay.

    Answers are not remembered: each was read after it was asked for.

    Args:
        look: returns the answers to some questions, in their order, with an exception where one has none. Runs in the
            thread pool.
        at_once: a look takes less time than another thread, so every question makes its own, in the event loop.
    """

    def __init__(self, look: Callable[[Sequence[K]], Sequence[V | Exception]], *, at_once: bool) -> None:
        self._look = look
        self._at_once = at_once
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._looking: set[asyncio.Task[None]] = set()

    async def ask(self, question: K) -> V:
        """Return the answer. Raises the exception that stands in its place."""
        if self._at_once:
            (answer,) = self._look((question,))
            if isinstance(answer, Exception):
                raise answer
            return answer
        future = self._waiting.get(question)
        if future is None:
            future = self._waiting[question] = asyncio.get_running_loop().create_future()
            # A look ends by itself when no question waits. In a context of its own: the next one is for others.
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
