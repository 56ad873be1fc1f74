"""Cache of secure-sum sessions: messages are read once, and then only the new ones.

A value is the truth while the session's row has the version that it was read at. A list that was frozen in it stays so
for ever. Only committed states are kept here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from server.db import rows
from server.db.session import Database, Transaction
from server.db.session_store import continue_session, has_ended, load_session
from server.db.tables import SessionRow
from server.domain.secure_sum_session import Declined, Session, changed
from study_protocol.secure_sum.messages import SumResult

# Sessions under way. A value holds some hundred bytes for each pair of neighbours.
_MAX_STATES = 16


@dataclass
class SessionState:
    """One session. `mark` is the number of the study's newest event when it was read.

    ended  no message follows. Sealed shares are not kept, and some messages are missing here
    lists  the lists that all clients see, as JSON, by name
    """

    version: int
    mark: int
    session: Session
    ended: bool
    lists: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def render(self, name: str, view: Callable[[Session], BaseModel | Declined]) -> bytes | Declined:
        """Return a list that is the same for all clients."""
        cached = self.lists.get(name)
        if cached is not None:
            return cached
        answer = view(self.session)
        if isinstance(answer, Declined):
            return answer
        return self.lists.setdefault(name, answer.model_dump_json().encode())


class States:
    """The sessions of one process. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[tuple[str, int], SessionState] = OrderedDict()
        self._refreshing: dict[tuple[str, int], threading.Lock] = {}

    def cached(self, study: str, round_number: int) -> SessionState | None:
        """As it was seen last, which may be a while ago."""
        return self._states.get((study, round_number))

    def under_way(self, study: str, event: int) -> list[int]:
        """Return rounds that were not over when they were seen last, before this event of the study."""
        with self._lock:
            return [
                key[1]
                for key, state in self._states.items()
                if key[0] == study and not state.ended and state.mark < event
            ]

    def current(self, tx: Transaction, study: str, row: SessionRow) -> Session:
        """Return the session as it is in this transaction, including the transaction's own changes."""
        key = ("session", study, row.round)
        if key not in tx.shared:
            tx.shared[key] = self._read(tx, study, row)
        return tx.shared[key]

    def change(self, tx: Transaction, study: str, row: SessionRow, session: Session, mark: int) -> None:
        """Set the session as the transaction changed it. Others see it once it is committed."""
        cached = self.cached(study, row.round)
        # The row is locked: what this process knows besides was lost, as when a standby took over without it.
        if cached is not None and cached.version > row.version:
            self.forget(study, row.round)
        first = ("session-changed", study, row.round) not in tx.shared
        tx.shared["session", study, row.round] = session
        tx.shared["session-changed", study, row.round] = _state(row, mark, session)
        if first:
            tx.after_commit(lambda: self._keep(study, row, tx.shared["session-changed", study, row.round]))

    def refreshed(self, database: Database, study: str, round_number: int) -> SessionState | None:
        """Return the session as it is now, or None. One thread reads, and the others wait for its result."""

        def work(tx: Transaction) -> SessionState | None:
            study_row = rows.find_study(tx, study)
            row = rows.find_session(tx, study_row.id, round_number)
            if row is None:
                return None
            state = _state(row, study_row.version, self._read(tx, study, row))
            self._keep(study, row, state)
            return state

        with self._lock:
            refreshing = self._refreshing.setdefault((study, round_number), threading.Lock())
        cached = self.cached(study, round_number)
        with refreshing:
            # Another thread has read it while this one waited.
            state = self.cached(study, round_number)
            if state is not None and state is not cached:
                return state
            return database.read("read-session", work)

    def forget(self, study: str, round_number: int) -> None:
        """Drop the session of a round that is over: sealed shares in it are erased."""
        with self._lock:
            self._states.pop((study, round_number), None)
            self._refreshing.pop((study, round_number), None)

    def _read(self, tx: Transaction, study: str, row: SessionRow) -> Session:
        cached = self.cached(study, row.round)
        # An older snapshot than the newest, or a database that has lost what it had acknowledged: the rows are right.
        if cached is None or cached.version > row.version:
            return load_session(tx, row)
        # Of a session that has ended only the lists are needed.
        if cached.ended or cached.version == row.version:
            return cached.session
        return continue_session(tx, row, cached.session, cached.version)

    def _keep(self, study: str, row: SessionRow, state: SessionState) -> None:
        key = (study, row.round)
        with self._lock:
            cached = self._states.get(key)
            # Two that have read may come here in any order.
            if cached is not None and cached.version > state.version:
                return
            if cached is not None:
                # Frozen lists are the same in every later state.
                state.lists.update(cached.lists)
            self._states[key] = state
            self._states.move_to_end(key)
            # One round of a study is under way: what was sealed in those before it need not be looked up any more.
            for earlier in [
                cached_key for cached_key in self._states if cached_key[0] == study and cached_key[1] < row.round
            ]:
                del self._states[earlier]
                self._refreshing.pop(earlier, None)
            while len(self._states) > _MAX_STATES:
                old, _ = self._states.popitem(last=False)
                self._refreshing.pop(old, None)


def _state(row: SessionRow, mark: int, session: Session) -> SessionState:
    if not has_ended(row):
        return SessionState(row.version, mark, session, ended=False)
    state = SessionState(row.version, mark, changed(session, shares={}, unmasks={}), ended=True)
    if row.result is not None:
        state.lists["result"] = SumResult.model_validate(row.result).model_dump_json().encode()
    return state
