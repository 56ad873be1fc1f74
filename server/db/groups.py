"""Transactions that arrive together are committed together: one begin, one lock, one fsync for all of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")
# One transaction under way (`server.db.session.Transaction`), whatever it is.
X = TypeVar("X")
X_co = TypeVar("X_co", covariant=True)
# More would keep the first of them waiting for the last.
_MOST = 64
# While others keep coming, a transaction waits for them: at most so many seconds after the last one, and altogether.
_PAUSE, _LONGEST = 0.002, 0.05
# Of different studies, and of pieces that could not be committed together.
_AT_ONCE = 8


@dataclass(frozen=True)
class _Piece:
    """context: of whoever asks, below whose span its transaction is shown."""

    name: str
    work: Callable[[Any], Any]
    context: Context = field(default_factory=copy_context)
    done: Future[Any] = field(default_factory=Future[Any])


class Write(Protocol[X_co]):
    """Runs a piece of work in a transaction of its own."""

    def __call__(self, name: str, work: Callable[[X_co], T], /) -> T: ...


class Groups(Generic[X]):
    """Writes about one study that come while another is being committed share the next transaction.

    Whoever comes alone waits for nobody. No thread waits for a commit but the one that makes it. Each piece sees what
    the pieces before it have done. A piece that raises takes nobody with it: all is rolled back, and each is run alone.
    """

    def __init__(self, write: Write[X]) -> None:
        self._write = write
        self._lock = threading.Lock()
        # Studies that are committed for now, with what has come since.
        self._waiting: dict[str, deque[_Piece]] = {}
        # When the last piece of each study came, of this machine's own clock.
        self._last: dict[str, float] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="commit")

    def write(self, study: str, name: str, work: Callable[[X], T]) -> Future[T]:
        """What `work` returns, possibly in one transaction with others of this study; done once it is committed."""
        piece = _Piece(name, work)
        # Whoever asked may go away, and would take it back; it is under way.
        piece.done.set_running_or_notify_cancel()
        with self._lock:
            now = time.monotonic()
            company = now - self._last.get(study, 0.0) < _LONGEST
            self._last[study] = now
            if study not in self._waiting:
                # Before it is noted that somebody commits: a process that ends takes no more work.
                self._threads.submit(self._commit_all, study, company)
                self._waiting[study] = deque()
            self._waiting[study].append(piece)
        return cast("Future[T]", piece.done)

    def waiting(self, study: str) -> list[str]:
        """Names of the pieces that nobody commits yet."""
        with self._lock:
            return [piece.name for piece in self._waiting.get(study, ())]

    def _commit_all(self, study: str, company: bool) -> None:
        while True:
            if company:
                self._gather(study)
            company = True
            with self._lock:
                waiting = self._waiting[study]
                group = [waiting.popleft() for _ in range(min(_MOST, len(waiting)))]
                if not group:
                    # Under the lock: whoever comes after this is the first again.
                    del self._waiting[study]
                    return
            self._commit(group)

    def _gather(self, study: str) -> None:
        with self._lock:
            waiting = self._waiting[study]
        end, before = time.monotonic() + _LONGEST, 0
        while before < len(waiting) < _MOST and time.monotonic() < end:
            before = len(waiting)
            time.sleep(_PAUSE)

    def _commit(self, group: list[_Piece]) -> None:
        if len(group) == 1:
            self._commit_alone(group[0])
        elif not self._commit_together(group):
            # At once: where the database is away, each would wait as long for it as all before it together.
            for piece in group:
                self._threads.submit(self._commit_alone, piece)

    def _commit_alone(self, piece: _Piece) -> None:
        try:
            piece.done.set_result(piece.context.run(self._write, piece.name, piece.work))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for this piece
            piece.done.set_exception(error)

    def _commit_together(self, group: list[_Piece]) -> bool:
        def work(tx: X) -> list[Any]:
            return [piece.work(tx) for piece in group]

        try:
            results = group[0].context.run(self._write, group[0].name, work)
        except BaseException:  # noqa: BLE001 - whoever is at fault raises it again, alone; the others must not wait
            return False
        for piece, result in zip(group, results, strict=True):
            piece.done.set_result(result)
        return True
