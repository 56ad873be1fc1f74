"""Readiness of the process: the database and the store of model files are asked side by side.

Neither is waited for longer than a short limit. A check that hangs keeps one thread, however often it is asked about.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, TypeVar

from server.services.coordinator import Coordinator

T = TypeVar("T")
# For so long "ready" is said again.
FRESH_SECONDS = 1.0
# Limit of one check. Clients that ask for readiness over a network wait a little longer than that.
CHECK_SECONDS = 2.0
# Of `wardround worker --check`, which opens everything anew.
COMMAND_SECONDS = 10.0


class NoAnswer(Exception):
    """A check was not answered within its limit. The text names it."""

    # It may stand in the log.
    names_nobody = True


class Single(Generic[T]):
    """Work that may hang, done by one thread at a time: further callers get the same result.

    fresh_seconds  for so long of `clock` a result is given again, so that work which strangers may ask for costs the
                   same
                   however often they ask. An error is not kept, so that a recovery is seen at once
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], T],
        *,
        fresh_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._work, self._fresh_seconds, self._clock = name, work, fresh_seconds, clock
        self._lock = threading.Lock()
        self._running: Future[T] | None = None
        self._fresh_until = -math.inf

    def ask(self) -> Future[T]:
        """Return the result under way, or of a moment ago, or a new one. It is shared, so it must not be cancelled."""
        with self._lock:
            running = self._running
            if running is None or (running.done() and self._clock() >= self._fresh_until):
                running = self._running = Future()
                # In the context of the first caller, which owns its spans. A daemon thread, so that work that hangs
                # does not keep the process from ending.
                run, arguments = copy_context().run, (self._do, running)
                threading.Thread(target=run, args=arguments, name=self._name, daemon=True).start()
            return running

    def _do(self, result: Future[T]) -> None:
        try:
            value = self._work()
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to those who wait
            result.set_exception(error)
        else:
            self._fresh_until = self._clock() + self._fresh_seconds
            result.set_result(value)


class Readiness:
    """The checks of one process, by what they ask: what `/readyz` waits for."""

    def __init__(self, coordinator: Coordinator, clock: Callable[[], float] = time.monotonic) -> None:
        works: Mapping[str, tuple[str, Callable[[], object]]] = {
            "the database": ("check-database", lambda: coordinator.database.read("readiness", lambda tx: tx.now())),
            "the store of model files": ("check-store", lambda: coordinator.blobs.check()),
        }
        self._checks: Mapping[str, Single[object]] = {
            key: Single(name, work, fresh_seconds=FRESH_SECONDS, clock=clock) for key, (name, work) in works.items()
        }

    def ask(self) -> Mapping[str, Future[object]]:
        """Return all checks, under way."""
        return {key: check.ask() for key, check in self._checks.items()}
