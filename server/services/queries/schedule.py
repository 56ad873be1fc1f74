"""Evaluations that a study's settings ask by themselves: queued as models are released, each once."""

from __future__ import annotations

from sqlalchemy import func, select

from server.db import rows
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import ModelRow, StudyRow
from server.services.queries.show import newest_number
from study_protocol.study.queries import QueryDocument


def evaluate_released(tx: Transaction, study: StudyRow, model: int) -> None:
    """Queue the evaluation of a model within its release, if it is due."""
    evaluation = rows.settings_of(study).evaluation
    # In the order of releases, not by rounds' numbers: queries take numbers, too.
    released = select(func.count()).where(ModelRow.study_id == study.id, ModelRow.version > 0)
    if evaluation is not None and evaluation.due(tx.session.scalar(released) or 0):
        _queue(tx, study, evaluation.document(model))


def evaluate_last(tx: Transaction, study: StudyRow) -> None:
    """Queue the evaluation of the last released model, unless it was queued before: no round of training follows."""
    evaluation, last = rows.settings_of(study).evaluation, rows.latest_model(tx, study.id)
    if evaluation is not None and last is not None and last.version > 0:
        _queue(tx, study, evaluation.document(last.version))


def queue(tx: Transaction, study: StudyRow, document: QueryDocument) -> QueryRow:
    """Queue a new query that waits for the hospitals' consent."""
    query = QueryRow(
        study_id=study.id,
        number=newest_number(tx, study) + 1,
        sha256=document.digest(),
        document=document.model_dump(mode="json"),
    )
    _wait(tx, study, query)
    return query


def requeue(tx: Transaction, study: StudyRow, query: QueryRow) -> None:
    """Queue a failed query anew."""
    _wait(tx, study, query)


def find_same(tx: Transaction, study: StudyRow, document: QueryDocument) -> QueryRow | None:
    """Return the query of this very document, if the study has it."""
    statement = select(QueryRow).where(QueryRow.study_id == study.id, QueryRow.sha256 == document.digest())
    return tx.session.scalars(statement).one_or_none()


def _queue(tx: Transaction, study: StudyRow, document: QueryDocument | None) -> None:
    # Once: a query that failed, for want of consents or of budget, is only asked anew by a person, and does not block
    # others.
    if document is not None and find_same(tx, study, document) is None:
        queue(tx, study, document)


def _wait(tx: Transaction, study: StudyRow, query: QueryRow) -> None:
    query.state, query.reason, query.created_at, query.due_at = "waiting", None, tx.now(), None
    tx.session.add(query)
    rows.append_event(tx, study, "query-asked", work=False)
    tx.session.flush()
