"""The current assignment of a client. All clients ask for it all the time, so a look is one statement.

The assignment of a round is put together once, from rows that are compared with what was signed, and signed for each
client that asks. Whether it may still be handed out is looked up every time.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, select

from server.db import rows
from server.db.ledger_store import attempt_under_way, require_base, require_released, require_unchanged
from server.db.session import Transaction
from server.db.session_store import AWAITED, is_awaited, members_at_opening
from server.db.tables import BudgetRow, ClientRow, ModelRow, ParticipantRow, RoundRow, SessionRow, StudyRow
from server.domain.errors import Rejected
from server.domain.study import unknown_study
from server.services.coordinator import Coordinator, Prepared
from server.services.queries.show import asked_of
from server.services.studies.returns import note_return
from server.services.tampered_studies import stopping_where_rows_differ
from server.services.views import at, ledger_head, model_info
from study_protocol.study.messages import Assignment, AssignmentBody, ModelInfo, SignedParameters
from study_protocol.study.queries import QueryAsked
from study_protocol.study.reasons import HOSPITALS_MISSING
from study_protocol.wire.signing import ASSIGNMENT

_PREPARING = threading.Lock()


@lru_cache(maxsize=8)
def _question(time: ColumnElement[float]) -> Select[*tuple[Any, ...]]:
    under_way = and_(RoundRow.study_id == StudyRow.id, RoundRow.ended_at.is_(None))
    is_sampled = and_(
        ParticipantRow.study_id == StudyRow.id,
        ParticipantRow.round == RoundRow.number,
        ParticipantRow.client == bindparam("client"),
    )
    session = and_(SessionRow.study_id == StudyRow.id, SessionRow.round == RoundRow.number)
    return (
        select(
            StudyRow.id,
            StudyRow.version,
            StudyRow.state.label("study"),
            StudyRow.stop_reason,
            StudyRow.pause_reason,
            ClientRow.state.label("client"),
            RoundRow.number.label("round"),
            RoundRow.state.label("round_state"),
            RoundRow.deadline,
            ParticipantRow.state.label("answer"),
            SessionRow.phase,
            BudgetRow.head_sha256,
            time.label("now"),
        )
        .select_from(StudyRow)
        .join(BudgetRow, BudgetRow.study_id == StudyRow.id)
        .outerjoin(ClientRow, and_(ClientRow.study_id == StudyRow.id, ClientRow.name == bindparam("client")))
        .outerjoin(RoundRow, under_way)
        .outerjoin(ParticipantRow, is_sampled)
        .outerjoin(SessionRow, session)
        .where(StudyRow.name == bindparam("study"))
    )


def find_assignment(coordinator: Coordinator, study: str, client: str) -> tuple[int, Assignment | None]:
    """Return the number of the study's newest event, and the signed assignment if the client is to answer one now.

    Where sums are made under masks, an answer is whole when the client has opened its shares. A client that was killed
    after its vectors had arrived is asked again, or the session could wait for it in vain. Its roster is the one of the
    round's opening, even if members have come or gone since: masking keys are checked against it.

    Raises:
        Rejected: `unknown-study`, `unknown-client`, `revoked` (also withdrawn), `study-finished` (extra stop_reason).
    """
    state = _look(coordinator, study, client)
    if state.pause_reason in HOSPITALS_MISSING:
        note_return(coordinator, study, client)
    if not _is_handed_out(state) or (state.answer != "sampled" and not _is_awaited(coordinator, state, client)):
        return state.version, None
    prepared = _prepared(coordinator, study, state)
    return (0, None) if prepared is None else (state.version, _signed(coordinator, prepared, client))


def glance_at_assignment(coordinator: Coordinator, study: str, client: str) -> tuple[int, Assignment | None] | None:
    """Return as `find_assignment`, if that takes less time than another thread, else None.

    Raises:
        As `find_assignment`.
    """
    if not coordinator.database.is_in_process:
        return None
    state = _look(coordinator, study, client)
    if state.pause_reason in HOSPITALS_MISSING:
        return None
    if not _is_handed_out(state):
        return state.version, None
    prepared = _cached(coordinator, study, state)
    if prepared is None or state.answer != "sampled":
        return None
    return state.version, _signed(coordinator, prepared, client)


def _look(coordinator: Coordinator, study: str, client: str) -> Any:
    question = _question(coordinator.database.time)
    state_rows = coordinator.database.look(question, {"study": study, "client": client})
    state = state_rows[0] if state_rows else None
    _require_member(state)
    return state


def _is_handed_out(state: Any) -> bool:
    # Past its deadline it is not, although no worker may have closed the round yet.
    return state.answer is not None and state.round_state == "collecting" and state.now < state.deadline


def _signed(coordinator: Coordinator, prepared: Prepared, client: str) -> Assignment:
    body = prepared.body.model_copy(update={"client": client})
    signature = coordinator.signer.sign(ASSIGNMENT, body.model_dump(mode="json"))
    return Assignment(assignment=body, signature=signature, session=prepared.session)


def _require_member(state: Any) -> None:
    if state is None:
        raise unknown_study()
    if state.study == "finished":
        raise Rejected("study-finished", "the study is finished: no round will follow", stop_reason=state.stop_reason)
    if state.client is None:
        raise Rejected("unknown-client", "the study has no client of this name")
    if state.client != "active":
        raise Rejected("revoked", "this client no longer takes part")


def _is_awaited(coordinator: Coordinator, state: Any, client: str) -> bool:
    if state.phase not in AWAITED:
        return False
    id, round = state.id, state.round
    return coordinator.database.read("is-awaited", lambda tx: is_awaited(tx, id, round, client))


def _prepared(coordinator: Coordinator, study: str, state: Any) -> Prepared | None:
    """Return the assignment of the round that was seen. None if it has ended meanwhile."""
    cached = _cached(coordinator, study, state)
    if cached is not None:
        return cached
    # All clients come at once: one request reads, the others wait for its result.
    with _PREPARING:
        cached = _cached(coordinator, study, state)
        if cached is not None:
            return cached
        read = coordinator.database.read
        prepared = stopping_where_rows_differ(
            coordinator, lambda: read("prepare-assignment", lambda tx: _read(coordinator, tx, study))
        )
        if prepared is not None:
            coordinator.assignments[study] = prepared
        return prepared


def _cached(coordinator: Coordinator, study: str, state: Any) -> Prepared | None:
    prepared = coordinator.assignments.get(study)
    return (
        prepared
        if prepared is not None and (prepared.round, prepared.head_sha256) == (state.round, state.head_sha256)
        else None
    )


def _query_asked(tx: Transaction, row: StudyRow, round_row: RoundRow, query: int) -> QueryAsked:
    document = asked_of(tx, row, round_row)
    number = document.question.model_number
    about = None if number is None else _model(tx, row, number)
    return QueryAsked(number=query, document=document, model=about)


def _read(coordinator: Coordinator, tx: Transaction, study: str) -> Prepared | None:
    row = rows.find_study(tx, study)
    round = rows.open_round(tx, row.id)
    if row.state == "finished" or round is None or round.state != "collecting":
        return None
    require_unchanged(tx, coordinator.signer, row)
    session = rows.find_session(tx, row.id, round.number)
    # Clear rounds are held to the roster as it is now.
    opened_with = members_at_opening(session)
    budget = tx.session.get_one(BudgetRow, row.id)
    query = None if round.query is None else _query_asked(tx, row, round, round.query)
    body = AssignmentBody(
        study=study,
        # Served in turn.
        client=study,
        round=round.number,
        phase="train" if query is None else "query",
        deadline=at(round.deadline),
        model=None if query is not None else _base(tx, row, round),
        query=query,
        attempt=attempt_under_way(tx, row) if query is None else None,
        settings_sha256=row.settings_sha256,
        roster_sha256=row.roster_sha256 if opened_with is None else opened_with[0],
        ledger=ledger_head(study, budget),
    )
    signed = None
    if session is not None:
        signed = SignedParameters(parameters=session.parameters, signature=session.signature)
    return Prepared(round.number, budget.head_sha256, body, signed)


def _base(tx: Transaction, study: StudyRow, round_row: RoundRow) -> ModelInfo:
    model = tx.session.get_one(ModelRow, (study.id, round_row.base_version))
    require_base(tx, study, model, round_row.number)
    return model_info(model)


def _model(tx: Transaction, study: StudyRow, version: int) -> ModelInfo:
    row = tx.session.get_one(ModelRow, (study.id, version))
    require_released(tx, study, row)
    return model_info(row)
