"""Ask a query: its cost, and its place in the queue. No hospital computes before its round begins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time

from sqlalchemy import delete, select

from accounting.budget.budget import Budget
from accounting.errors import InvalidArgument
from server.db import rows
from server.db.ledger_store import budget_of, lock_account
from server.db.query_tables import ConsentRow, QueryRow
from server.db.session import Transaction
from server.db.tables import ModelRow, StudyRow
from server.db.tamper_check import require_queries_as_charged, round_that_opened
from server.domain.errors import Rejected
from server.domain.queries import effects, min_noise_multiplier, noise_of
from server.services.coordinator import Coordinator, Written
from server.services.people.audit import record_operated
from server.services.queries.chains import kept_after, to_resume
from server.services.queries.schedule import fail, find_same, queue, requeue, reserved
from server.services.queries.show import consents, find, view
from server.services.tampered_studies import stopping_where_rows_differ
from study_protocol.documents.by_hospital import fault_of_distances
from study_protocol.queries.kinds.distances import Distances
from study_protocol.study.monitoring import window_in
from study_protocol.study.queries import Consent, Query, QueryDocument, QueryForecast
from study_protocol.study.reasons import REFUSED_BY_HOSPITALS
from study_protocol.study.steps import fault_of_steps


def forecast(coordinator: Coordinator, study: str, request: QueryDocument) -> QueryForecast:
    """Return the cost that the query would have now. No hospital is asked.

    Raises:
        Rejected: `unknown-study`, `no-queries`, `no-evaluation`, `invalid-request` (noise or size that cannot be
            drawn).
    """

    def work(tx: Transaction) -> QueryForecast:
        row = rows.find_study(tx, study)
        document = _by_roster(tx, row, request)
        budget, settings = budget_of(tx, coordinator.signer, row), rows.settings_of(row)
        _require_askable(row, document)
        require_queries_as_charged(tx, row, document.digest())
        attempt = _attempt(tx, row, document)
        # Else its cost is charged or kept already, and this is what it has cost.
        target = document if attempt.queued is None else attempt.queued
        cost, steps, later = target.cost(), target.question.costs_after(), kept_after(row, target)
        kept_costs = reserved(tx, row, without=target)
        supposed, noise = budget.supposing(kept_costs), noise_of(target, settings, row.quorum)
        authorisation = supposed.supposing(later).authorise_query(cost)
        is_allowed = attempt.queued is None or authorisation.is_allowed
        return QueryForecast(
            sha256=document.digest(),
            known=None if attempt.existing is None else attempt.existing.number,
            allowed=is_allowed,
            reason=None if is_allowed else authorisation.reason,
            cells=cost.cells,
            sensitivity=target.question.sensitivity,
            noise_std=noise.guaranteed,
            noise_expected=noise_of(target, settings, _active(tx, row)).present,
            limits=effects(budget, cost, steps),
            least_noise_multiplier=None if authorisation.is_allowed else _min_noise(supposed, row, target),
            sums=1 + len(steps),
        )

    return stopping_where_rows_differ(coordinator, lambda: coordinator.database.read("forecast-query", work))


def ask(coordinator: Coordinator, study: str, request: QueryDocument, *, with_clients: bool = False) -> Written[Query]:
    """Take the query in. The same one again gets the same answer, at no cost. One that failed is tried anew.

    with_clients  the asker may see who consents

    Raises:
        Rejected: `unknown-study`, `no-queries`, `no-evaluation`, `unknown-model`, `invalid-request`, `study-finished`,
            `query-overspends` (extra least_noise_multiplier), `query-opened` (its answer is lost).
    """

    def work(tx: Transaction) -> Written[Query]:
        row = rows.lock_study(tx, study)
        document = _by_roster(tx, row, request)
        _require_askable(row, document)
        require_queries_as_charged(tx, row, document.digest())
        attempt = _attempt(tx, row, document)
        existing = attempt.existing
        if existing is not None and attempt.queued is None:
            return Written(view(coordinator, tx, row, existing, with_clients=with_clients), created=False)
        query = _let_in(coordinator, tx, row, attempt.queued or document, attempt.failed)
        return Written(
            view(coordinator, tx, row, existing or query, with_clients=with_clients), created=existing is None
        )

    return stopping_where_rows_differ(coordinator, lambda: coordinator.database.write("ask-query", work))


@dataclass(frozen=True)
class _Attempt:
    """What asking a document would do.

    existing  the query of this very document, if the study has it
    queued    the document that is queued: this one, or the failed step from which its question goes on. None: none is
    failed    the query that is tried anew
    """

    existing: QueryRow | None
    queued: QueryDocument | None
    failed: QueryRow | None = None


def _attempt(tx: Transaction, study: StudyRow, document: QueryDocument) -> _Attempt:
    existing = find_same(tx, study, document)
    if existing is None:
        if document.step > 1:
            raise Rejected(
                "invalid-request",
                f"this is step {document.step} of a question. Ask its first step: the next one is asked once an answer "
                "leads to it",
            )
        return _Attempt(None, document)
    if existing.state == "failed":
        return _Attempt(existing, document, existing)
    resumed = None if study.state == "finished" else to_resume(tx, study, document)
    return _Attempt(existing, None) if resumed is None else _Attempt(existing, *resumed)


def _let_in(
    coordinator: Coordinator, tx: Transaction, study: StudyRow, document: QueryDocument, failed: QueryRow | None
) -> QueryRow:
    """Queue a question that fits with all that may follow it. failed: the query that is tried anew."""
    if study.state == "finished":
        raise Rejected("study-finished", "the study is finished: its answers stay, and it takes no more queries")
    require_queries_as_charged(tx, study, document.digest())
    _require_never_opened(tx, study, document)
    reserved_costs = reserved(tx, study, without=document)
    account = lock_account(tx, coordinator.signer, study)
    window = _require_window(tx, study, document, account.budget)
    _require_model(tx, study, document)
    _require_fits(account.budget.supposing(reserved_costs), study, document, len(reserved_costs))
    record_operated(coordinator, tx, study, "ask", account, query=document.digest())
    # Hospitals need weeks for their next snapshot, and every window's cost is kept as long as the study lives.
    keeps = window is None
    if failed is None:
        return queue(tx, study, document, keeps=keeps)
    # A hospital that refused may consent now.
    conditions = (ConsentRow.study_id == study.id, ConsentRow.query == failed.number)
    tx.session.execute(delete(ConsentRow).where(*conditions))
    requeue(tx, study, failed, keeps=keeps)
    return failed


def consent(coordinator: Coordinator, study: str, number: int, client: str, answer: Consent) -> Written[Consent]:
    """Record a hospital's word on a query that waits. A later word replaces it while the query waits.

    Raises:
        Rejected: `unknown-study`, `unknown-query`, `query-closed` (it waits no more).
    """

    def work(tx: Transaction) -> Written[Consent]:
        row = rows.lock_study(tx, study)
        query = find(tx, row, number, lock=True)
        earlier = tx.session.get(ConsentRow, (row.id, number, client))
        if earlier is not None and Consent.model_validate(earlier.consent) == answer:
            return Written(answer, created=False)
        if query.state != "waiting":
            raise Rejected("query-closed", "this query no longer accepts consents")
        if earlier is None:
            earlier = ConsentRow(study_id=row.id, query=number, client=client)
        earlier.consent, earlier.at = answer.model_dump(mode="json"), tx.now()
        tx.session.add(earlier)
        tx.session.flush()
        _weigh(tx, row, query)
        return Written(answer, created=True)

    return coordinator.database.write("consent", work)


def _weigh(tx: Transaction, study: StudyRow, query: QueryRow) -> None:
    """Decide whether the query's round may begin now, later, or never."""
    tally = consents(tx, study, query.number)
    if tally.hopeless:
        fail(tx, study, query, REFUSED_BY_HOSPITALS)
        return
    patience = rows.settings_of(study).schedule.round_deadline_seconds
    query.due_at = tally.due_at(query.created_at, patience)
    rows.append_event(tx, study, "query-consented", work=query.due_at is not None)


def _require_askable(study: StudyRow, document: QueryDocument) -> None:
    """Check all that settings alone decide.

    Raises:
        Rejected: `no-queries`, `no-evaluation`, `invalid-request`.
    """
    settings = rows.settings_of(study)
    if settings.statistics is None:
        raise Rejected("no-queries", "this study takes no queries: its settings have no section statistics")
    if document.question.bears == "evaluated" and settings.evaluation is None and window_in(document) is None:
        raise Rejected(
            "no-evaluation",
            "this study evaluates no model on its patients: its settings have no section evaluation, which sets some "
            "of them aside before training begins",
        )
    faults = [
        fault_of_distances(settings) if isinstance(document.question, Distances) else None,
        fault_of_steps(settings) if document.steps > 1 else None,
    ]
    if fault := next(filter(None, faults), None):
        raise Rejected("invalid-request", fault)
    if document.question.protocol > study.protocol:
        raise Rejected(
            "invalid-request",
            f"this form of question needs number {document.question.protocol} of the protocol, and this study was "
            f"created with number {study.protocol}: ask without it, or in a newer study",
        )
    _require_numbers(document, settings.statistics.max_cells)


def _require_numbers(document: QueryDocument, max_cells: int) -> None:
    """Check the cells and the noise of a question. Raises Rejected `invalid-request`."""
    if document.question.cells > max_cells:
        raise Rejected(
            "invalid-request",
            f"{document.question.cells} cells, and a query of this study has at most {max_cells} "
            "(statistics.max_cells)",
        )
    try:
        document.costs()
    except InvalidArgument as error:
        raise Rejected("invalid-request", f"no such noise can be drawn: {error}") from error


def _by_roster(tx: Transaction, study: StudyRow, request: QueryDocument) -> QueryDocument:
    """Return the document with its blocks, one for each member now, where a question by hospital leaves them open."""
    if not request.question.is_by_hospital:
        return request
    members = [member.name for member in rows.clients(tx, study.id) if member.state == "active"]
    if find_same(tx, study, request) is not None:
        return request
    if len(members) < study.quorum:
        raise Rejected(
            "invalid-request",
            f"{len(members)} hospitals have joined, and a round needs {study.quorum}: ask by hospital once they have",
        )
    hospitals = request.question.hospitals_asked
    if hospitals and set(hospitals) != set(members):
        raise Rejected(
            "invalid-request", "hospitals: not the members of this study now. Leave them out, and they are filled in"
        )
    try:
        return request.of_hospitals(members)
    except ValueError as error:
        raise Rejected("invalid-request", "too many hospitals and cells: ask for fewer cells") from error


def _require_never_opened(tx: Transaction, study: StudyRow, document: QueryDocument) -> None:
    opened = round_that_opened(tx, study, document.digest())
    if opened is not None:
        raise Rejected(
            "query-opened",
            f"round {opened} opened this question's sum and its answer was lost: hospitals answer what was opened only "
            "once. Another question, if only with another noise_multiplier, is a new one with its own cost",
        )


def _require_model(tx: Transaction, study: StudyRow, document: QueryDocument) -> None:
    number = document.question.model_number
    if number is not None and tx.session.get(ModelRow, (study.id, number)) is None:
        raise Rejected(
            "unknown-model", f"the study has released no model {number}: a round's model has the number of the round"
        )


def _require_window(tx: Transaction, study: StudyRow, document: QueryDocument, budget: Budget) -> int | None:
    """Return the number of the window of later patients that a question asks about, or None if it asks about none.

    Raises:
        Rejected: `invalid-request`: no window of the settings, one that was asked about, or one that is not due.
    """
    if window_in(document) is None:
        return None
    monitoring = rows.settings_of(study).monitoring
    number = None if monitoring is None else monitoring.window_of(document)
    if monitoring is None or number is None:
        raise Rejected(
            "invalid-request",
            "first_record: not a window of the study's section monitoring. `wardround monitor ask` asks about those",
        )
    if budget.authorise().is_allowed:
        raise Rejected("invalid-request", "the study still trains: later patients are asked about once it has ended")
    due = datetime.combine(monitoring.due_on(number), time.min, UTC)
    if tx.now() < due.timestamp():
        raise Rejected("invalid-request", f"window {number} is asked about from {due.date()} on, by this clock")
    of_another = (QueryRow.study_id == study.id, QueryRow.sha256 != document.digest())
    for stored in tx.session.scalars(select(QueryRow.document).where(*of_another)):
        if monitoring.window_of(QueryDocument.model_validate(stored)) == number:
            raise Rejected(
                "invalid-request", f"window {number} was asked about another model: each is asked about once"
            )
    return number


def _require_fits(budget: Budget, study: StudyRow, document: QueryDocument, reserved_count: int) -> None:
    """Check that the query fits with all that may follow it.

    budget: charged with a round under way, and with all kept for `reserved_count` other queries.
    """
    cost, steps, later = document.cost(), document.question.costs_after(), kept_after(study, document)
    authorisation = budget.supposing(later).authorise_query(cost)
    if authorisation.is_allowed:
        return
    undecided = f", with {reserved_count} that hospitals have not decided" if reserved_count else ""
    if authorisation.reason != "budget-exhausted":
        raise Rejected(
            "query-overspends", f"the study has as many queries as it may (statistics.max_queries){undecided}"
        )
    if later and not steps:
        raise Rejected(
            "query-overspends",
            f"this question and the {len(later)} of synthesis that follow from it could together pass a limit of the "
            f"study{undecided}. No hospital was asked",
            least_noise_multiplier=None,
        )
    min_noise = _min_noise(budget, study, document)
    helps = "no noise would help" if min_noise is None else f"a noise_multiplier of {min_noise:g} would fit"
    subject = f"this query and the {len(steps)} steps after it" if steps else "this query"
    raise Rejected(
        "query-overspends",
        f"{subject} could pass a limit of the study{undecided}: {helps}. No hospital was asked",
        least_noise_multiplier=min_noise,
    )


def _min_noise(budget: Budget, study: StudyRow, document: QueryDocument) -> float | None:
    """Return the least noise multiplier with which the query fits with all that may follow it, or None."""
    steps = document.question.costs_after()
    if document.steps > 1:
        # A later step with other noise would be another question.
        return min_noise_multiplier(budget, document.cost(), steps) if document.step == 1 else None
    return min_noise_multiplier(budget.supposing(kept_after(study, document)), document.cost())


def _active(tx: Transaction, study: StudyRow) -> int:
    return max(study.quorum, len(rows.active_members(tx, study.id)))
