"""The events of a study, numbered from 1 without gaps."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import bindparam, select

from server.db import rows
from server.db.session import Transaction
from server.db.tables import EventRow, StudyRow
from server.services.coordinator import Coordinator
from server.services.views import at
from study_protocol.study.messages import StudyEvent

_MARKS = select(StudyRow.name, StudyRow.version).where(StudyRow.name.in_(bindparam("studies", expanding=True)))


def since(coordinator: Coordinator, study: str, after: int = 0, limit: int = 500) -> list[StudyEvent]:
    """Raises Rejected `unknown-study`."""

    def work(tx: Transaction) -> list[StudyEvent]:
        statement = select(EventRow).where(EventRow.study_id == rows.find_study(tx, study).id, EventRow.number > after)
        events = tx.session.scalars(statement.order_by(EventRow.number).limit(limit))
        return [StudyEvent(id=row.number, kind=row.kind, study=study, round=row.round, at=at(row.at)) for row in events]

    return coordinator.database.read("events-since", work)


def marks(coordinator: Coordinator, studies: Collection[str]) -> dict[str, int]:
    """Return the newest event number of each of these studies: one cheap query for all waiting requests."""
    versions = coordinator.database.look(_MARKS, {"studies": list(studies)})
    # Waiting requests compare these. A value that is no number is no news, and must not end all waits.
    return {name: version for name, version in versions if isinstance(version, int)}
