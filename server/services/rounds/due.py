"""What a worker could do now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import and_, exists, func, or_, select

from server.db.lease import is_free_for
from server.db.secure_sum_tables import SessionRow
from server.db.session import Transaction
from server.db.tables import BudgetRow, ClientRow, LeaseRow, ParticipantRow, RoundRow, StudyRow

Kind = Literal["open", "advance", "sum", "close", "release", "scrub"]


@dataclass(frozen=True)
class WorkItem:
    """One step of one study; `round` is 0 when the step opens a new one."""

    study_id: int
    study: str
    kind: Kind
    round: int


def find_due(tx: Transaction, owner: str) -> list[WorkItem]:
    """Every step that `owner` can take now, studies in order of their ids; those that others hold are left out."""
    free = set(tx.session.scalars(select(LeaseRow.study_id).where(is_free_for(tx, owner))))
    return [task for task in (*_openings(tx), *_continuations(tx)) if task.study_id in free]


def _openings(tx: Transaction) -> list[WorkItem]:
    active = (
        select(func.count())
        .where(ClientRow.study_id == StudyRow.id, ClientRow.state == "active")
        .correlate(StudyRow)
        .scalar_subquery()
    )
    under_way = exists().where(RoundRow.study_id == StudyRow.id, RoundRow.ended_at.is_(None))
    # A study whose budget is spent ends whether or not its clients are still there.
    possible = or_(active >= StudyRow.quorum, BudgetRow.can_continue.is_(False))
    wanted = (
        select(StudyRow.id, StudyRow.name)
        .join_from(StudyRow, BudgetRow)
        .where(StudyRow.state == "running", StudyRow.next_round_at <= tx.time, ~under_way, possible)
    )
    return [WorkItem(id, name, "open", 0) for id, name in tx.session.execute(wanted.order_by(StudyRow.id))]


def _continuations(tx: Transaction) -> list[WorkItem]:
    waiting = exists().where(
        and_(
            ParticipantRow.study_id == RoundRow.study_id,
            ParticipantRow.round == RoundRow.number,
            ParticipantRow.state == "sampled",
        )
    )
    wanted = (
        select(RoundRow.study_id, StudyRow.name, RoundRow.number, RoundRow.state, RoundRow.deadline <= tx.time, waiting)
        .join_from(RoundRow, StudyRow)
        .outerjoin(SessionRow, and_(SessionRow.study_id == RoundRow.study_id, SessionRow.round == RoundRow.number))
        .add_columns(SessionRow.phase, SessionRow.due_at <= tx.time, SessionRow.replies > SessionRow.tried)
        .where(RoundRow.scrubbed_at.is_(None))
        .order_by(RoundRow.study_id, RoundRow.number)
    )
    tasks: list[WorkItem] = []
    for id, name, number, state, late, is_awaited, phase, due, news in tx.session.execute(wanted):
        if state == "collecting" and phase is not None:
            kind = _session_kind(phase, due=bool(due), news=bool(news))
        else:
            kind = _kind(state, closes=bool(late) or not is_awaited)
        if kind is not None:
            tasks.append(WorkItem(id, name, kind, number))
    return tasks


def _session_kind(phase: str, *, due: bool, news: bool) -> Kind | None:
    if phase in ("summed", "failed"):
        return "close"
    if phase == "unmask" and news:
        return "sum"
    return "advance" if due else None


def _kind(state: str, *, closes: bool) -> Kind | None:
    match state:
        case "collecting":
            return "close" if closes else None
        case "settled":
            return "release"
        case "released" | "abandoned" | "stopped":
            return "scrub"
        case _:
            return None
