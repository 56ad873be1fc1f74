"""The queue of queries: evaluations that settings ask by themselves, and the costs that undecided queries keep."""

from __future__ import annotations

from sqlalchemy import ColumnElement, func, select

from accounting.plan.queries import QueryCost
from server.db import rows
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import ModelRow, StudyRow
from server.domain.queries import NEVER
from server.services.queries.chains import kept
from server.services.queries.show import newest_number
from study_protocol.study.queries import QueryDocument
from study_protocol.study.reasons import UNDECIDED

# A query that keeps its cost: its round has not begun.
_WAITING = (QueryRow.state == "waiting", QueryRow.reserved_until.is_not(None))


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


def ask_next(tx: Transaction, study: StudyRow, document: QueryDocument | None) -> None:
    """Queue the question to which an answer has led, with the cost that was kept for it."""
    if document is not None and study.state != "finished" and find_same(tx, study, document) is None:
        queue(tx, study, document)


def reserved(tx: Transaction, study: StudyRow, *, without: QueryDocument | None = None) -> list[QueryCost]:
    """Return the costs that are kept for queries on which hospitals have not decided, or whose round has not begun.

    Those to which the answers of a synthesis or of a question in steps have not led yet are among them, and windows of
    later patients to come.

    without: a question whose own cost, if it is that of a window, is left out
    """
    documents = select(QueryRow.document).where(*_WAITING, QueryRow.study_id == study.id)
    waiting = [
        QueryDocument.model_validate(each).cost() for each in tx.session.scalars(documents.order_by(QueryRow.number))
    ]
    return waiting + kept(tx, study) + _of_windows_left(tx, study, without)


def _of_windows_left(tx: Transaction, study: StudyRow, without: QueryDocument | None) -> list[QueryCost]:
    monitoring = rows.settings_of(study).monitoring
    if monitoring is None:
        return []
    # Those that have begun are charged, or supposed to be, by the ledger. Those that wait keep their cost here alone.
    begun = select(QueryRow.document).where(QueryRow.study_id == study.id, QueryRow.state.in_(("asked", "answered")))
    documents = [QueryDocument.model_validate(each) for each in tx.session.scalars(begun)]
    over = {monitoring.window_of(each) for each in (*documents, *([] if without is None else [without]))}
    return [monitoring.cost()] * sum(number not in over for number in range(1, monitoring.windows + 1))


def expire(tx: Transaction, study: StudyRow) -> None:
    """Fail the queries on which hospitals have not decided in time: what was kept for them is free again."""
    late = (*_WAITING, QueryRow.study_id == study.id, *overdue(tx))
    for query in tx.session.scalars(select(QueryRow).where(*late).with_for_update()).all():
        fail(tx, study, query, UNDECIDED)


def overdue(tx: Transaction) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a query whose time to be decided is over."""
    return QueryRow.state == "waiting", QueryRow.due_at.is_(None), QueryRow.reserved_until <= tx.time


def fail(tx: Transaction, study: StudyRow, query: QueryRow, reason: str) -> None:
    """Let a query fail before its round has begun. Its reserved cost is free again, so training may begin."""
    query.state, query.reason, query.due_at = "failed", reason, None
    rows.append_event(tx, study, "query-failed")
    look_again(study)


def look_again(study: StudyRow) -> None:
    """Tell the workers that look for openings: a query has ended, after which a study may train on or end."""
    if study.next_round_at >= NEVER:
        study.next_round_at = 0.0


def queue(tx: Transaction, study: StudyRow, document: QueryDocument, *, keeps: bool = True) -> QueryRow:
    """Queue a new query that waits for the hospitals' consent.

    keeps: its cost is kept for it for the time of `statistics.decision_deadline_seconds`.
    """
    query = QueryRow(
        study_id=study.id,
        number=newest_number(tx, study) + 1,
        sha256=document.digest(),
        document=document.model_dump(mode="json"),
    )
    _wait(tx, study, query, keeps=keeps)
    return query


def requeue(tx: Transaction, study: StudyRow, query: QueryRow, *, keeps: bool = True) -> None:
    """Queue a failed query anew. keeps: as in `queue`."""
    _wait(tx, study, query, keeps=keeps)


def find_same(tx: Transaction, study: StudyRow, document: QueryDocument) -> QueryRow | None:
    """Return the query of this very document, if the study has it."""
    statement = select(QueryRow).where(QueryRow.study_id == study.id, QueryRow.sha256 == document.digest())
    return tx.session.scalars(statement).one_or_none()


def _queue(tx: Transaction, study: StudyRow, document: QueryDocument | None) -> None:
    # Once: a query that failed, for want of consents or of budget, is only asked anew by a person, and does not block
    # others.
    if document is not None and find_same(tx, study, document) is None:
        # The plan has room for all that are scheduled, so they wait as long as the study lives.
        queue(tx, study, document, keeps=False)


def _wait(tx: Transaction, study: StudyRow, query: QueryRow, *, keeps: bool) -> None:
    query.state, query.reason, query.created_at, query.due_at = "waiting", None, tx.now(), None
    statistics = rows.settings_of(study).statistics
    query.reserved_until = tx.now() + statistics.decision_seconds if keeps and statistics is not None else None
    tx.session.add(query)
    rows.append_event(tx, study, "query-asked", work=False)
    tx.session.flush()
