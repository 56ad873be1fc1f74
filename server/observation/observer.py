"""The observer of requests, transactions and a worker's steps: metrics, traces, both or neither."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.observation.instruments import Instruments
    from server.observation.spans import Spans


def _ignore_retry() -> None:
    """Ignore that a transaction was run again."""


_UNOBSERVED_SPAN: AbstractContextManager[Callable[[], None]] = nullcontext(_ignore_retry)


@dataclass(frozen=True)
class ProcessObserver:
    """The observer that is handed to every observed object. Without instruments and spans it costs a comparison.

    instruments  Prometheus' counters and histograms of this process
    spans        OpenTelemetry's, sent to a collector
    """

    instruments: Instruments | None = None
    spans: Spans | None = None

    @property
    def idle(self) -> bool:
        """Return whether neither metrics nor traces are wanted."""
        return self.instruments is None and self.spans is None

    def transaction(self, name: str) -> AbstractContextManager[Callable[[], None]]:
        """Observe one named transaction. Call the yielded function before every further attempt."""
        return _UNOBSERVED_SPAN if self.idle else self._transaction(name)

    def answered(self, name: str, started: float) -> None:
        """Count a question that needed no transaction. It was put at `started`, in `time.perf_counter`'s seconds.

        Cheaper than `transaction`, and no span: every request asks one.
        """
        if self.instruments is not None:
            self.instruments.committed(name, time.perf_counter() - started, 0)

    def step(self, kind: str) -> AbstractContextManager[object]:
        """Observe one step of a worker."""
        return _UNOBSERVED_SPAN if self.idle else self._step(kind)

    def failed(self, kind: str) -> None:
        """Count a worker's failed step, whose study is paused for a while."""
        if self.instruments is not None:
            self.instruments.failed(kind)

    def looked(self) -> None:
        """Count a worker's look for due steps."""
        if self.instruments is not None:
            self.instruments.looked()

    @contextmanager
    def _transaction(self, name: str) -> Generator[Callable[[], None]]:
        retries, started = 0, time.perf_counter()

        def count_retry() -> None:
            nonlocal retries
            retries += 1

        with nullcontext() if self.spans is None else self.spans.transaction(name) as ended:
            try:
                yield count_retry
            finally:
                if self.instruments is not None:
                    self.instruments.committed(name, time.perf_counter() - started, retries)
                if ended is not None:
                    ended(retries)

    @contextmanager
    def _step(self, kind: str) -> Generator[None]:
        started = time.perf_counter()
        with nullcontext() if self.spans is None else self.spans.step(kind):
            try:
                yield
            finally:
                if self.instruments is not None:
                    self.instruments.stepped(kind, time.perf_counter() - started)


UNOBSERVED = ProcessObserver()
