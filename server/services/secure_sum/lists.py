"""Lists of a secure-sum session for its clients. A list is made once and never changes, and many wait for each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel
from sqlalchemy import bindparam, select

from server.db import rows
from server.db.session import Transaction
from server.db.session_states import SessionState
from server.db.session_store import MessageForgotten, load_session
from server.db.tables import SessionRow, StudyRow
from server.domain import secure_sum as rules
from server.domain.errors import Rejected
from server.domain.secure_sum_session import Declined, Session
from server.services.coordinator import Coordinator
from server.services.secure_sum.exchanges import find, rejected
from study_protocol.secure_sum.messages import SessionView
from study_protocol.study.messages import SignedParameters

logger = logging.getLogger("wardround.coordinator")
ListName = Literal["keys", "inbox", "survivors", "consistency", "result"]
_TOO_EARLY = Declined("too-early", "the sums are not opened yet")
_FOR_ALL: dict[ListName, Callable[[Session], BaseModel | Declined]] = {
    "keys": rules.key_list,
    "survivors": rules.survivor_list,
    "consistency": rules.consistency_list,
    # Not of the session's value: beside it once it is there.
    "result": lambda session: _TOO_EARLY,
}
_PHASE = (
    select(SessionRow.phase)
    .join(StudyRow, StudyRow.id == SessionRow.study_id)
    .where(StudyRow.name == bindparam("study"), SessionRow.round == bindparam("round"))
)
_VERSION = select(StudyRow.version).where(StudyRow.name == bindparam("study"))


def read_session(coordinator: Coordinator, study: str, round_number: int) -> tuple[int, SessionView]:
    """Return the signed parameters and the phase, beside the number of the study's newest event.

    Raises:
        Rejected: `unknown-study`, `no-session`.
    """

    def work(tx: Transaction) -> tuple[int, SessionView]:
        study_row = rows.find_study(tx, study)
        row = find(tx, study_row.id, round_number)
        signed = SignedParameters(parameters=row.parameters, signature=row.signature)
        view = {"signed": signed, "phase": row.phase, "failure": row.failure}
        return study_row.version, SessionView.model_validate(view)

    return coordinator.database.read("read-session", work)


def frozen_list(coordinator: Coordinator, study: str, round_number: int, name: ListName, client: str) -> bytes | None:
    """Return the list as JSON, if this process has seen it frozen. No question goes to the database.

    client  the caller: an inbox is its own
    """
    state = coordinator.sessions.cached(study, round_number)
    listed = None if state is None else _listed(state, name, client)
    return listed if isinstance(listed, bytes) else None


def read_list(
    coordinator: Coordinator, study: str, round_number: int, name: ListName, client: str
) -> tuple[int, bytes | None]:
    """Return the list as JSON once it is frozen, beside the number of the study's newest event.

    Raises:
        Rejected: `unknown-study`, `no-session`, `not-sampled`, `session-failed`, or `round-closed` for an erased list.
    """
    listed = frozen_list(coordinator, study, round_number, name, client)
    if listed is not None:
        return 0, listed
    state = _newest(coordinator, study, round_number) or coordinator.sessions.refreshed(
        coordinator.database, study, round_number
    )
    if state is None:
        raise Rejected("no-session", "this round has no secure sum, or does not exist")
    return state.mark, _content_of(
        state, _listed(state, name, client) or _read_inbox(coordinator, study, round_number, client)
    )


def glance(
    coordinator: Coordinator, study: str, round_number: int, name: ListName, client: str
) -> tuple[int, bytes | None] | None:
    """Return as `read_list`, if that takes less time than another thread, else None.

    Raises:
        As `read_list`.
    """
    content = frozen_list(coordinator, study, round_number, name, client)
    if content is not None:
        return 0, content
    state = _newest(coordinator, study, round_number) if coordinator.database.is_in_process else None
    listed = None if state is None else _listed(state, name, client)
    return None if state is None or listed is None else (state.mark, _content_of(state, listed))


def _newest(coordinator: Coordinator, study: str, round_number: int) -> SessionState | None:
    """Return the session as this process saw it last, if the study has had no event since."""
    newest = coordinator.database.look(_VERSION, {"study": study})
    state = coordinator.sessions.cached(study, round_number)
    return None if not newest or state is None or state.mark < newest[0][0] else state


def _content_of(state: SessionState, listed: bytes | Declined) -> bytes | None:
    if isinstance(listed, bytes):
        return listed
    # After the view: what froze before the failure can still be read.
    if state.session.phase == "failed":
        failure = state.session.failure
        raise Rejected("session-failed", f"the session ended: {failure}", failure=failure)
    if listed.code != "too-early":
        raise rejected(listed)
    return None


def follow(coordinator: Coordinator, study: str, event: int) -> None:
    """React to news of the study: sealed shares are not kept of a session that has ended at another process."""
    for round in coordinator.sessions.under_way(study, event):
        phase_rows = coordinator.database.look(_PHASE, {"study": study, "round": round})
        if phase_rows and phase_rows[0][0] not in ("summed", "failed"):
            continue
        try:
            coordinator.sessions.refreshed(coordinator.database, study, round)
        except Exception as error:
            # The next request for it gets the error. Here it is only let go.
            logger.warning("a session that has ended cannot be read", exc_info=error)
            coordinator.sessions.forget(study, round)


def _listed(state: SessionState, name: ListName, client: str) -> bytes | Declined | None:
    """Return the list, or None if its bodies are not kept any more."""
    if name != "inbox":
        return state.render(name, _FOR_ALL[name])
    if state.ended:
        return None
    inbox = rules.inbox(state.session, client)
    return inbox if isinstance(inbox, Declined) else inbox.model_dump_json().encode()


def _read_inbox(coordinator: Coordinator, study: str, round_number: int, client: str) -> bytes | Declined:
    """Return the inbox of an ended session: it may be asked for until its round is cleared away."""

    def work(tx: Transaction) -> bytes | Declined:
        session = load_session(tx, find(tx, rows.find_study(tx, study).id, round_number))
        try:
            inbox = rules.inbox(session, client)
        except MessageForgotten:
            raise Rejected("round-closed", "the round is over, and what was sent for it is erased") from None
        return inbox if isinstance(inbox, Declined) else inbox.model_dump_json().encode()

    return coordinator.database.read("read-inbox", work)
