"""The data of the pages: all studies at a glance, the changes in one of them, and its ledger as it was hashed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, or_, select

from server.db import rows
from server.db.ledger_store import entries, limits_of
from server.db.row_checks import WRONG_VALUE, RowBroken
from server.db.session import Transaction
from server.db.tables import Answer, EventRow, ModelRow, ParticipantRow, RoundRow, StudyRow
from server.db.tamper_check import DatabaseDiffers, require_as_signed
from server.services import views
from server.services.coordinator import Coordinator
from server.services.studies import lifecycle
from study_protocol.study.messages import LimitStatement, RoundView, Study
from study_protocol.study.plan_of import hides_attendance
from study_protocol.wire.signing import canonical_json

# By what became of them: how many hospitals of one round.
Counts = Mapping[Answer, int]


@dataclass(frozen=True)
class StudyGlance:
    """One study at a glance. `limits` is None where the database is not what the coordinator signed."""

    study: Study
    limits: list[LimitStatement] | None
    last_activity: datetime


@dataclass(frozen=True)
class StudyChanges:
    """The changes in a study.

    version  number of its newest event when this was read: ask with it for what is newer
    rounds   in order of their numbers, each with its hospitals by outcome, or None where that is hidden
    more     there are more of them
    """

    version: int
    rounds: list[tuple[RoundView, Counts | None]]
    more: bool


def glances(
    coordinator: Coordinator,
    after: str | None,
    limit: int,
    search: str | None,
    *,
    among: Collection[str] | None = None,
) -> tuple[list[StudyGlance], str | None]:
    """Return studies in order of their names, and the name behind which there are more."""
    listed = lifecycle.list_studies(coordinator, after, limit, search, among=among)

    def work(tx: Transaction) -> list[StudyGlance]:
        return [_glance(coordinator, tx, study) for study in listed.studies]

    return coordinator.database.read("glance-at-studies", work), listed.next


def _glance(coordinator: Coordinator, tx: Transaction, study: Study) -> StudyGlance:
    row, budget = rows.find_with_budget(tx, study.study)
    limits, last = None, row.created_at
    try:
        newest = tx.session.scalar(
            select(EventRow).where(EventRow.study_id == row.id).order_by(EventRow.number.desc()).limit(1)
        )
        last = last if newest is None else newest.at
        if row.stop_reason == "database-differs":
            raise DatabaseDiffers(row.name, "found before")
        require_as_signed(tx, coordinator.signer, row, budget)
        # Without the numbers that take long: a list must not wait for them.
        limits = [LimitStatement.model_validate({**limit, "reports": []}) for limit in limits_of(row, budget)]
    except (DatabaseDiffers, RowBroken, *WRONG_VALUE):
        pass
    return StudyGlance(study, limits, views.at(last))


def changes(coordinator: Coordinator, study: str, *, since: int, after: int, limit: int) -> StudyChanges:
    """Return rounds above `after` that had an event after event `since`, and the one under way.

    Raises:
        Rejected: `unknown-study`.
    """

    def work(tx: Transaction) -> StudyChanges:
        row = rows.find_study(tx, study)
        # Before the rounds: what comes in between is told twice, and never missed.
        version = row.version
        statement = select(RoundRow).where(RoundRow.study_id == row.id, RoundRow.number > after)
        if since:
            touched = select(EventRow.round).where(
                EventRow.study_id == row.id, EventRow.number > since, EventRow.round.is_not(None)
            )
            statement = statement.where(or_(RoundRow.number.in_(touched), RoundRow.ended_at.is_(None)))
        round_rows = tx.session.scalars(statement.order_by(RoundRow.number).limit(limit + 1)).all()
        return StudyChanges(version, _round_views(tx, row, round_rows[:limit]), len(round_rows) > limit)

    return coordinator.database.read("read-changes", work)


def _round_views(
    tx: Transaction, study: StudyRow, round_rows: Sequence[RoundRow]
) -> list[tuple[RoundView, Counts | None]]:
    numbers = [round.number for round in round_rows]
    models = select(ModelRow).where(ModelRow.study_id == study.id, ModelRow.version.in_(numbers))
    released = {model.version: model for model in tx.session.scalars(models)}
    answers = None if hides_attendance(rows.settings_of(study)) else _answers(tx, study.id, numbers)
    return [
        (
            views.round_view(round, released.get(round.number), None),
            None if answers is None else answers.get(round.number, {}),
        )
        for round in round_rows
    ]


def _answers(tx: Transaction, study_id: int, numbers: Sequence[int]) -> dict[int, dict[Answer, int]]:
    """Return by round how many hospitals were drawn, sent, refused, stayed away. No names."""
    statement = (
        select(ParticipantRow.round, ParticipantRow.state, func.count())
        .where(ParticipantRow.study_id == study_id, ParticipantRow.round.in_(numbers))
        .group_by(ParticipantRow.round, ParticipantRow.state)
    )
    counts: dict[int, dict[Answer, int]] = {}
    for round, state, count in tx.session.execute(statement):
        counts.setdefault(round, {})[state] = count
    return counts


def ledger_lines(coordinator: Coordinator, study: str, *, after: int, limit: int) -> bytes:
    """Return entries above `after`, one a line: the very bytes whose SHA-256 is the entry's hash.

    Raises:
        Rejected: `unknown-study`.
    """

    def work(tx: Transaction) -> bytes:
        page = entries(tx, rows.find_study(tx, study).id, after, limit)
        hashed = ({name: value for name, value in entry.to_dict().items() if name != "sha256"} for entry in page)
        return b"".join(canonical_json(entry) + b"\n" for entry in hashed)

    return coordinator.database.read("read-ledger-lines", work)
