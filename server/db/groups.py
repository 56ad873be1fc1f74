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
# One transaction under way (`server.db.session.Transaction`), of any kind.
X = TypeVar("X")
X_co = TypeVar("X_co", covariant=True)
# More would keep the first of them waiting for the last.
_MAX_GROUP = 64
# While others keep coming, a transaction waits for them: at most so many seconds after the last one, and altogether.
_PAUSE, _LONGEST = 0.002, 0.05
# Groups, and pieces that could not be committed together.
_AT_ONCE = 8


@dataclass(frozen=True)
class _Piece:
    """context: of the caller, below whose span its transaction is shown. claimed: by a thread that runs it alone."""

    name: str
    work: Callable[[Any], Any]
    context: Context = field(default_factory=copy_context)
    done: Future[Any] = field(default_factory=Future[Any])
    claimed: list[bool] = field(default_factory=list[bool])


class Write(Protocol[X_co]):
    """Runs a piece of work in a transaction of its own."""

    def __call__(self, name: str, work: Callable[[X_co], T], /) -> T: ...


class Groups(Generic[X]):
    """Groups of writes: those about one study that come while another is being committed share the next transaction.

    A single write does not wait. One thread commits for all of a group. Each piece sees the changes of the pieces
    before it. A piece that raises harms no other: all is rolled back, and each is run alone.
    """

    def __init__(self, write: Write[X]) -> None:
        self._write = write
        self._lock = threading.Lock()
        # Studies that are committed for now, with what has come since.
        self._waiting: dict[str, deque[_Piece]] = {}
        # When the last piece of each study came, of this machine's own clock.
        self._last: dict[str, float] = {}
        self._groups = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="commit")
        # Apart: those of one study must not keep the groups of the others waiting.
        self._single_executor = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="commit-alone")

    def write(self, study: str, name: str, work: Callable[[X], T]) -> Future[T]:
        """Return the future result of `work`, done once it is committed. It may share a transaction with others."""
        piece = _Piece(name, work)
        # The caller may go away, and would take the work back, but it is under way.
        piece.done.set_running_or_notify_cancel()
        with self._lock:
            now = time.monotonic()
            company = now - self._last.get(study, 0.0) < _LONGEST
            self._last[study] = now
            if study not in self._waiting:
                # Before the study is marked as busy: a process that ends takes no more work.
                self._groups.submit(self._commit_next, study, company)
                self._waiting[study] = deque()
            self._waiting[study].append(piece)
        return cast("Future[T]", piece.done)

    def waiting(self, study: str) -> list[str]:
        """Return the names of the pieces that wait for a commit."""
        with self._lock:
            return [piece.name for piece in self._waiting.get(study, ())]

    def _commit_next(self, study: str, company: bool) -> None:
        """Commit one group. Then this study's turn comes after that of the others."""
        if company:
            self._gather(study)
        with self._lock:
            waiting = self._waiting[study]
            group = [waiting.popleft() for _ in range(min(_MAX_GROUP, len(waiting)))]
        self._commit(group)
        with self._lock:
            if not waiting:
                # Under the lock: the next piece after this is the first again.
                del self._waiting[study]
                return
        try:
            self._groups.submit(self._commit_next, study, True)
        except RuntimeError:
            # The process ends, or may start no thread: no piece is left waiting.
            self._commit_next(study, company=False)

    def _gather(self, study: str) -> None:
        with self._lock:
            waiting = self._waiting[study]
        end, before = time.monotonic() + _LONGEST, 0
        while before < len(waiting) < _MAX_GROUP and time.monotonic() < end:
            before = len(waiting)
            time.sleep(_PAUSE)

    def _commit(self, group: list[_Piece]) -> None:
        if len(group) == 1:
            self._commit_alone(group[0])
        elif not self._commit_together(group):
            # At once: where the database is away, each would wait as long for it as all before it together.
            for piece in group:
                try:
                    self._single_executor.submit(self._commit_alone, piece)
                except RuntimeError:
                    self._commit_alone(piece)

    def _commit_alone(self, piece: _Piece) -> None:
        try:
            # It may be queued although its thread could not be started, and come here twice.
            with self._lock:
                if piece.claimed:
                    return
                piece.claimed.append(True)
            piece.done.set_result(piece.context.run(self._write, piece.name, piece.work))
        except StopIteration as error:
            # A future cannot pass on a StopIteration.
            piece.done.set_exception(RuntimeError(f"{piece.name} ended early: {error!r}"))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for this piece
            piece.done.set_exception(error)
        finally:
            # Or the error's traceback and the piece would keep each other, and the session that they read.
            del piece

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
