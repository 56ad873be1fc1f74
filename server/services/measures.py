"""Counts over the database, for monitoring of the coordinator: no hospital, no private value.

A study is named by its public name, which is what an operator has to act on, and which logs and addresses hold anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select

from server.db.session import Transaction
from server.db.tables import EventRow, ModelRow, ParticipantRow, RoundRow, SessionRow, StudyRow
from server.domain.secure_sum_session import Phase
from server.services.coordinator import Coordinator

_ENDED: tuple[Phase, ...] = ("summed", "failed")


@dataclass(frozen=True)
class Past:
    """Counts of ended work, over the whole history: the longer it is, the longer reading them takes.

    rounds    by outcome: released, abandoned, stopped
    sessions  secure sums by phase, of those that came to an end
    failures  failed secure sums by reason
    models    bytes of all models
    """

    rounds: Mapping[str, int]
    sessions: Mapping[str, int]
    failures: Mapping[str, int]
    models: int


@dataclass(frozen=True)
class Measures:
    """Counts over all studies. `idle_seconds` by study, of those that run.

    rounds    by state, of those under way
    sessions  secure sums by phase, of rounds under way
    updates   bytes of updates of rounds that are not scrubbed
    """

    studies: Mapping[str, int]
    rounds: Mapping[str, int]
    sessions: Mapping[str, int]
    idle_seconds: Mapping[str, float]
    updates: int


def measure(coordinator: Coordinator) -> Measures:
    """Return counts of work under way, in one snapshot. The cost does not grow with the history."""
    return coordinator.database.read("measure", _measure)


def measure_past(coordinator: Coordinator) -> Past:
    """Return counts of ended work, in one snapshot. Database errors pass through."""
    return coordinator.database.read("measure-past", _measure_past)


def _measure(tx: Transaction) -> Measures:
    # Of both there is an index, which only holds rows under way.
    is_open, unscrubbed = RoundRow.ended_at.is_(None), RoundRow.scrubbed_at.is_(None)
    updates = (
        select(func.sum(ParticipantRow.bytes))
        .join_from(ParticipantRow, RoundRow, _same_round(ParticipantRow))
        .where(unscrubbed)
    )
    phases = (
        select(SessionRow.phase, func.count())
        .join_from(SessionRow, RoundRow, _same_round(SessionRow))
        .where(is_open, SessionRow.phase.not_in(_ENDED))
        .group_by(SessionRow.phase)
    )
    states = select(RoundRow.state, func.count()).where(is_open).group_by(RoundRow.state)
    return Measures(
        studies=_counts(tx, select(StudyRow.state, func.count()).group_by(StudyRow.state)),
        rounds=_counts(tx, states),
        sessions=_counts(tx, phases),
        idle_seconds=_idle_seconds(tx),
        updates=int(tx.session.scalar(updates) or 0),
    )


def _measure_past(tx: Transaction) -> Past:
    ended = select(RoundRow.state, func.count()).where(RoundRow.ended_at.is_not(None)).group_by(RoundRow.state)
    statement = (
        select(SessionRow.phase, SessionRow.failure, func.count())
        .where(SessionRow.phase.in_(_ENDED))
        .group_by(SessionRow.phase, SessionRow.failure)
    )
    counts: Sequence[Any] = tx.session.execute(statement).all()
    failures = {str(failure): int(number) for _, failure, number in counts if failure is not None}
    summed = {str(phase): int(number) for phase, failure, number in counts if failure is None}
    return Past(
        rounds=_counts(tx, ended),
        sessions=summed | ({"failed": sum(failures.values())} if failures else {}),
        failures=failures,
        models=int(tx.session.scalar(select(func.sum(ModelRow.bytes))) or 0),
    )


def _same_round(row: Any) -> ColumnElement[bool]:
    return and_(RoundRow.study_id == row.study_id, RoundRow.number == row.round)


def _counts(tx: Transaction, statement: Any) -> Mapping[str, int]:
    counts: Sequence[Any] = tx.session.execute(statement).all()
    return {str(word): int(number) for word, number in counts}


def _idle_seconds(tx: Transaction) -> Mapping[str, float]:
    # A study's newest event has the number that its row holds.
    newest = and_(EventRow.study_id == StudyRow.id, EventRow.number == StudyRow.version)
    statement = select(StudyRow.name, EventRow.at).join_from(StudyRow, EventRow, newest)
    events = tx.session.execute(statement.where(StudyRow.state == "running"))
    # On the database's clock, which wrote the events.
    return {name: max(0.0, tx.now() - at) for name, at in events}
