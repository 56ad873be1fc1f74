"""Whether the process can do its work: the database and the store of model files, asked side by side.

Neither is waited for longer than a short limit. What hangs keeps one thread, however often it is asked about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, TypeVar

from server.services.coordinator import Coordinator

T = TypeVar("T")
# Of one check; whoever asks for readiness over a network waits a little longer than that.
CHECK_SECONDS = 2.0
# Of `wardround worker --check`, which opens everything anew.
COMMAND_SECONDS = 10.0


class NoAnswer(Exception):
    """Something was not answered within its limit; the text says what."""

    # It may stand in the log.
    names_nobody = True


class Single(Generic[T]):
    """Work that may hang, done by one thread at a time: whoever asks meanwhile gets the same result."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._name, self._work = name, work
        self._lock = threading.Lock()
        self._running: Future[T] | None = None

    def ask(self) -> Future[T]:
        """The result that is being worked out, or a new one. Nobody may cancel it: it is shared."""
        with self._lock:
            if self._running is None or self._running.done():
                self._running = Future()
                # In the context of whoever asked first, of which its spans are. A daemon: what hangs must not keep the
                # process from ending.
                run, given = copy_context().run, (self._do, self._running)
                threading.Thread(target=run, args=given, name=self._name, daemon=True).start()
            return self._running

    def _do(self, result: Future[T]) -> None:
        try:
            result.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to those who wait
            result.set_exception(error)


class Readiness:
    """The checks of one process, by what they ask: what `/readyz` waits for."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._checks: Mapping[str, Single[object]] = {
            "the database": Single(
                "check-database", lambda: coordinator.database.read("readiness", lambda tx: tx.now())
            ),
            "the store of model files": Single("check-store", lambda: coordinator.blobs.check()),
        }

    def ask(self) -> Mapping[str, Future[object]]:
        """All checks, under way."""
        return {what: check.ask() for what, check in self._checks.items()}
