"""A study whose rows are not what was signed is stopped for good: no result may rest on it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.exc import IntegrityError, InvalidRequestError

from accounting.budget.ledger import LedgerError
from server.db import rows
from server.db.ledger_store import require_unchanged
from server.db.row_checks import WRONG_VALUE, RowBroken, require_sound
from server.db.session import Transaction
from server.db.session_store import require_readable
from server.db.tables import RoundRow, SessionRow, StudyRow
from server.db.tamper_check import DatabaseDiffers
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from study_protocol.study.reasons import ENDINGS

logger = logging.getLogger("wardround.coordinator")
T = TypeVar("T")
# Errors from rows that no program of ours wrote, where it is not `DatabaseDiffers` at once.
UNREADABLE = (DatabaseDiffers, RowBroken, InvalidRequestError, LedgerError, *WRONG_VALUE)
FOUND_BEFORE = "a value in the database was not what the signed ledger says: the log names it"
WHAT_TO_DO = ENDINGS["database-differs"][1]


def stopping_where_rows_differ(coordinator: Coordinator, work: Callable[[], T]) -> T:
    """Return the result of `work`. If it finds rows that are not what was signed, the study is stopped first.

    Raises:
        Rejected: `study-finished` with the difference and what to do. Errors of `work` pass through.
    """
    try:
        return work()
    except DatabaseDiffers as difference:
        stop_differing(coordinator, difference.study)
        raise refused(difference) from difference


def refused(difference: DatabaseDiffers) -> Rejected:
    """Return the rejection for requests to such a study."""
    return Rejected("study-finished", f"{difference.difference}. {WHAT_TO_DO}", stop_reason="database-differs")


def stop_differing(coordinator: Coordinator, study: str) -> tuple[DatabaseDiffers | None, bool]:
    """Finish the study and the round under way, without a word in the ledger, which others may have written.

    The rows are compared once more under the study's lock: rows that were set right meanwhile do not stop it.

    Returns:
        The difference, None where there is none, and whether this call has stopped the study.
    """
    difference, stopped = coordinator.database.unaccompanied.write(
        "stop-differing", lambda tx: _stop(coordinator, tx, study)
    )
    if difference is not None and stopped:
        extra = {"study": study, "event": "database-differs"}
        logger.critical("%s: the study is stopped. %s", difference.difference, WHAT_TO_DO, extra=extra)
    return difference, stopped


def _stop(coordinator: Coordinator, tx: Transaction, study: str) -> tuple[DatabaseDiffers | None, bool]:
    # By columns: its row may be one that cannot be loaded any more.
    statement = select(StudyRow.id, StudyRow.state, StudyRow.stop_reason).where(StudyRow.name == study)
    study_row = tx.session.execute(statement.with_for_update()).one_or_none()
    if study_row is None:
        return None, False
    id, state, reason = study_row
    if (state, reason) == ("finished", "database-differs"):
        return DatabaseDiffers(study, FOUND_BEFORE), False
    difference = _difference(coordinator, tx, study, id)
    if difference is None or state == "finished":
        return difference, False
    over = {"state": "finished", "state_since": tx.now(), "pause_reason": None, "stop_reason": "database-differs"}
    stopped = _write(tx, StudyRow, StudyRow.id == id, **over)
    under_way = (RoundRow.study_id == id) & RoundRow.ended_at.is_(None)
    number = tx.session.scalar(select(RoundRow.number).where(under_way))
    _write(tx, RoundRow, under_way, state="stopped", reason="database-differs", ended_at=tx.now())
    # Sums that are not opened yet must never be.
    going_on = (SessionRow.study_id == id) & SessionRow.phase.not_in(("summed", "failed"))
    _write(tx, SessionRow, going_on, phase="failed", failure="stopped", due_at=None, version=SessionRow.version + 1)
    _tell(tx, study, number)
    return difference, stopped


def _difference(coordinator: Coordinator, tx: Transaction, study: str, study_id: int) -> DatabaseDiffers | None:
    try:
        require_sound(tx, study_id)
        require_readable(tx, study_id)
        require_unchanged(tx, coordinator.signer, rows.find_study(tx, study), whole=True)
    except DatabaseDiffers as difference:
        return difference
    except RowBroken as broken:
        return DatabaseDiffers(study, str(broken))
    return None


def _write(tx: Transaction, kind: type[Any], condition: ColumnElement[bool], **values: object) -> bool:
    """Return whether it could be written: a CHECK may refuse a row because of a foreign value in it."""
    statement = update(kind).where(condition).values(**values, written_by=tx.name)
    try:
        with tx.session.begin_nested():
            tx.session.execute(statement.execution_options(synchronize_session=False))
    except IntegrityError as error:
        logger.critical("a row that was changed cannot be stopped", exc_info=error)
        return False
    return True


def _tell(tx: Transaction, study: str, round_number: int | None) -> None:
    """Append the events, if they can still be numbered."""
    try:
        with tx.session.begin_nested():
            row = rows.find_study(tx, study)
            if round_number is not None:
                rows.append_event(tx, row, "round-stopped", round_number)
            rows.append_event(tx, row, "database-differs")
            rows.append_event(tx, row, "study-finished")
    except (RowBroken, IntegrityError) as error:
        logger.warning("the events of this study cannot be continued", exc_info=error)
