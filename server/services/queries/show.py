"""The state of queries: the progress of each, its consents, and the signed answers."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select

from server.db import rows
from server.db.query_tables import ConsentRow, QueryRow
from server.db.row_checks import RowBroken
from server.db.session import Transaction
from server.db.tables import ClientRow, ModelRow, RoundRow, StudyRow
from server.db.tamper_check import require_asked
from server.domain.errors import Rejected
from server.domain.queries import ConsentTally, consents_of
from server.services.coordinator import Coordinator
from server.services.queries.chains import step_place, synthesis_place
from server.services.views import at, model_info
from study_protocol.study.queries import (
    Consent,
    HospitalsConsent,
    Query,
    QueryDocument,
    QueryList,
    QueryState,
    SignedAnswer,
)
from study_protocol.wire.signing import SigningError, decode_public_key


def list_queries(
    coordinator: Coordinator,
    study: str,
    *,
    with_clients: bool,
    own_client: str | None = None,
    state: QueryState | None = None,
    after: int = 0,
    limit: int = 100,
) -> QueryList:
    """Return queries above `after`, in order of their numbers, without answers. Other parameters as in `list_rounds`.

    Raises Rejected `unknown-study`.
    """

    def work(tx: Transaction) -> QueryList:
        row = rows.find_study(tx, study)
        statement = select(QueryRow).where(QueryRow.study_id == row.id, QueryRow.number > after)
        if state is not None:
            statement = statement.where(QueryRow.state == state)
        query_rows = tx.session.scalars(statement.order_by(QueryRow.number).limit(limit + 1)).all()
        more = query_rows[limit - 1].number if len(query_rows) > limit else None
        views = [
            view(coordinator, tx, row, query_row, with_clients=with_clients, own_client=own_client, whole=False)
            for query_row in query_rows[:limit]
        ]
        return QueryList(queries=views, next=more)

    return coordinator.database.read("list-queries", work)


def show_query(
    coordinator: Coordinator, study: str, number: int, *, with_clients: bool, own_client: str | None = None
) -> Query:
    """Raises Rejected `unknown-study`, `unknown-query`."""

    def work(tx: Transaction) -> Query:
        row = rows.find_study(tx, study)
        return view(coordinator, tx, row, find(tx, row, number), with_clients=with_clients, own_client=own_client)

    return coordinator.database.read("show-query", work)


def find(tx: Transaction, study: StudyRow, number: int, *, lock: bool = False) -> QueryRow:
    """Raises Rejected `unknown-query`."""
    row = tx.session.get(QueryRow, (study.id, number), with_for_update=lock)
    if row is None:
        raise Rejected("unknown-query", "the study has no query of this number")
    return row


def consents(tx: Transaction, study: StudyRow, query: int) -> ConsentTally:
    """Return the consents and refusals of the hospitals that are active now, and have a block if it is by hospital."""
    active = select(ClientRow.name).where(ClientRow.study_id == study.id, ClientRow.state == "active")
    hospitals = QueryDocument.model_validate(find(tx, study, query).document).question.hospitals_asked
    if hospitals:
        active = active.where(ClientRow.name.in_(hospitals))
    answers = [(row.client, Consent.model_validate(row.consent).allowed) for row in said_of(tx, study, query)]
    return consents_of(tx.session.scalars(active).all(), answers, study.quorum)


def asked_of(tx: Transaction, study: StudyRow, round_row: RoundRow) -> QueryDocument:
    """Return the document that a query's round asks.

    Raises LookupError, RowBroken, DatabaseDiffers: not as it was asked.
    """
    if round_row.query is None:
        raise LookupError("a round of training has no query")
    require_asked(tx, study, round_row.number)
    return QueryDocument.model_validate(tx.session.get_one(QueryRow, (study.id, round_row.query)).document)


def due_query(tx: Transaction, study: StudyRow) -> QueryRow | None:
    """Return the first query whose round may begin now."""
    due = (QueryRow.study_id == study.id, QueryRow.state == "waiting", QueryRow.due_at <= tx.time)
    return tx.session.scalars(select(QueryRow).where(*due).order_by(QueryRow.number).limit(1)).one_or_none()


def said_of(tx: Transaction, study: StudyRow, query: int) -> Sequence[ConsentRow]:
    """Return every hospital's word, by name."""
    statement = select(ConsentRow).where(ConsentRow.study_id == study.id, ConsentRow.query == query)
    return tx.session.scalars(statement.order_by(ConsentRow.client)).all()


def newest_number(tx: Transaction, study: StudyRow) -> int:
    """Return the newest number of the study's queries. 0: it has none."""
    return tx.session.scalar(select(func.max(QueryRow.number)).where(QueryRow.study_id == study.id)) or 0


def view(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    row: QueryRow,
    *,
    with_clients: bool,
    own_client: str | None = None,
    whole: bool = True,
) -> Query:
    """Return one query. Leads and auditors see who consents, and a hospital sees its own word. whole: with its answer.

    Raises:
        RowBroken: the answer is not the one that this coordinator signed.
    """
    tally = consents(tx, study, row.number)
    document = QueryDocument.model_validate(row.document)
    number = document.question.model_number
    model = None if number is None else tx.session.get(ModelRow, (study.id, number))
    return Query(
        study=study.name,
        number=row.number,
        sha256=row.sha256,
        document=document,
        model=None if model is None else model_info(model),
        state=row.state,
        created_at=at(row.created_at),
        reserved_until=None if row.reserved_until is None or not with_clients else at(row.reserved_until),
        round=row.round,
        reason=row.reason,
        allowed=len(tally.granted & tally.active),
        refused=len(tally.refused & tally.active),
        needed=tally.needed,
        consents=_visible(said_of(tx, study, row.number), own_client, with_clients=with_clients),
        answered=as_signed(coordinator, row) if whole and row.answer is not None else None,
        synthesis=synthesis_place(tx, study, row, document),
        place=step_place(tx, study, row, document),
    )


def _visible(
    answers: Sequence[ConsentRow], own_client: str | None, *, with_clients: bool
) -> list[HospitalsConsent] | None:
    if not with_clients and own_client is None:
        return None
    return [
        HospitalsConsent(client=answer.client, consent=Consent.model_validate(answer.consent))
        for answer in answers
        if with_clients or answer.client == own_client
    ]


def as_signed(coordinator: Coordinator, row: QueryRow) -> SignedAnswer:
    """Return the answer in this row. Raises RowBroken: it is not the one that this coordinator signed."""
    signed_answer = SignedAnswer.model_validate(row.answer)
    try:
        signed_answer.require_signed(decode_public_key(coordinator.signer.public_key))
    except SigningError as error:
        raise RowBroken("queries.answer is not what this coordinator has signed") from error
    return signed_answer
