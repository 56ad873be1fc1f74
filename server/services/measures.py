"""What stands in the database, counted for whoever watches over the coordinator: no hospital, nothing of privacy.

A study is named by its public name, which is what an operator has to act on, and which logs and addresses hold anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, func, select

from server.db.session import Transaction
from server.db.tables import EventRow, ModelRow, ParticipantRow, RoundRow, SessionRow, StudyRow
from server.services.coordinator import Coordinator


@dataclass(frozen=True)
class Measures:
    """Counts over all studies; `idle_seconds` by study, of those that run.

    rounds       by state: released, abandoned or stopped for those that ended
    sessions     secure sums by phase
    failures     failed secure sums by reason
    blob_bytes   sizes of the files that the database knows of, by what they hold
    """

    studies: Mapping[str, int]
    rounds: Mapping[str, int]
    sessions: Mapping[str, int]
    failures: Mapping[str, int]
    idle_seconds: Mapping[str, float]
    blob_bytes: Mapping[str, int]


def measure(coordinator: Coordinator) -> Measures:
    """Everything in one snapshot. Raises what the database raises."""
    return coordinator.database.read("measure", _measure)


def _measure(tx: Transaction) -> Measures:
    def counts(column: Any) -> Mapping[str, int]:
        wanted = select(column, func.count()).where(column.is_not(None)).group_by(column)
        return {str(word): int(number) for word, number in tx.session.execute(wanted)}

    def total(wanted: Select[Any]) -> int:
        return int(tx.session.scalar(wanted) or 0)

    unscrubbed = and_(
        RoundRow.study_id == ParticipantRow.study_id,
        RoundRow.number == ParticipantRow.round,
        RoundRow.scrubbed_at.is_(None),
    )
    updates = select(func.sum(ParticipantRow.bytes)).join_from(ParticipantRow, RoundRow, unscrubbed)
    return Measures(
        studies=counts(StudyRow.state),
        rounds=counts(RoundRow.state),
        sessions=counts(SessionRow.phase),
        failures=counts(SessionRow.failure),
        idle_seconds=_idle_seconds(tx),
        blob_bytes={"models": total(select(func.sum(ModelRow.bytes))), "updates": total(updates)},
    )


def _idle_seconds(tx: Transaction) -> Mapping[str, float]:
    # A study's newest event has the number that its row holds.
    newest = and_(EventRow.study_id == StudyRow.id, EventRow.number == StudyRow.version)
    wanted = select(StudyRow.name, EventRow.at).join_from(StudyRow, EventRow, newest)
    found = tx.session.execute(wanted.where(StudyRow.state == "running"))
    # On the database's clock, which wrote the events.
    return {name: max(0.0, tx.now() - at) for name, at in found}
