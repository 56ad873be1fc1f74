"""Transactions that arrive together are committed together: one begin, one lock, one fsync for all of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")
# One transaction under way (`server.db.session.Transaction`), whatever it is.
X = TypeVar("X")
X_co = TypeVar("X_co", covariant=True)
# More would keep the first of them waiting for the last.
_MOST = 64


@dataclass(frozen=True)
class _Piece:
    """turn: a group to commit, of which this piece is the first; none when another has tried: `done` says how."""

    name: str
    work: Callable[[Any], Any]
    done: Future[Any] = field(default_factory=Future[Any])
    turn: Future[list[_Piece]] = field(default_factory=Future[list["_Piece"]])


class Write(Protocol[X_co]):
    """Runs a piece of work in a transaction of its own."""

    def __call__(self, name: str, work: Callable[[X_co], T], /) -> T: ...


class Groups(Generic[X]):
    """Writes about one study that meet while another is being committed share the next transaction.

    Whoever comes first commits for those who come meanwhile; nobody waits for company. Each piece sees what the
    pieces before it have done. A piece that raises takes nobody with it: all is rolled back, and each is run alone.
    """

    def __init__(self, write: Write[X]) -> None:
        self._write = write
        self._lock = threading.Lock()
        # Studies that somebody commits for now, with what has come since.
        self._waiting: dict[str, deque[_Piece]] = {}

    def write(self, study: str, name: str, work: Callable[[X], T]) -> T:
        """What `work` returns, possibly in one transaction with others of this study. Blocks until it is committed."""
        piece = _Piece(name, work)
        with self._lock:
            first = study not in self._waiting
            if first:
                self._waiting[study] = deque()
            else:
                self._waiting[study].append(piece)
        group = [piece] if first else piece.turn.result()
        if group:
            try:
                self._commit(group)
            finally:
                self._hand_over(study)
        elif not piece.done.done():
            self._commit_alone(piece)
        return cast(T, piece.done.result())

    def waiting(self, study: str) -> list[str]:
        """Names of the pieces that wait for somebody else's commit."""
        with self._lock:
            return [piece.name for piece in self._waiting.get(study, ())]

    def _hand_over(self, study: str) -> None:
        """Let one of those who came meanwhile commit for them: nobody works for others after its own piece is done."""
        with self._lock:
            waiting = self._waiting[study]
            group = [waiting.popleft() for _ in range(min(_MOST, len(waiting)))]
            if not group:
                # Under the lock: whoever comes after this is the first again.
                del self._waiting[study]
                return
        group[0].turn.set_result(group)

    def _commit(self, group: list[_Piece]) -> None:
        """Those that are not committed together are run each in its own thread, as if nobody else had come."""
        together = len(group) > 1 and self._commit_together(group)
        for piece in group[1:]:
            piece.turn.set_result([])
        if not together:
            self._commit_alone(group[0])

    def _commit_alone(self, piece: _Piece) -> None:
        try:
            piece.done.set_result(self._write(piece.name, piece.work))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for this piece
            piece.done.set_exception(error)

    def _commit_together(self, group: list[_Piece]) -> bool:
        def work(tx: X) -> list[Any]:
            return [piece.work(tx) for piece in group]

        try:
            results = self._write(group[0].name, work)
        except BaseException:  # noqa: BLE001 - whoever is at fault raises it again, alone; the others must not wait
            return False
        for piece, result in zip(group, results, strict=True):
            piece.done.set_result(result)
        return True
