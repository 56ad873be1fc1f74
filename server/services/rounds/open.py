"""Authorise, reserve, sample: the next round begins, or the study ends because it may not."""

from __future__ import annotations

from functools import partial

from accounting.budget.ledger import Entry
from server.db import rows
from server.db.leases import Lease, commit_under_lease
from server.db.ledger_store import LedgerAccount, Statement, attempt_under_way, budget_of, lock_account, statement_after
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import BudgetRow, ModelRow, ParticipantRow, RoundRow, SessionRow, StudyRow
from server.db.tamper_check import require_queries_as_charged, round_that_opened
from server.domain.queries import NEVER
from server.domain.rounds import no_session, sample
from server.services.coordinator import Coordinator
from server.services.queries.schedule import evaluate_last, expire, fail, reserved
from server.services.queries.show import consents, due_query
from server.services.rounds.close import abandon_round, finish
from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.messages import ParameterFault
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.study.queries import QueryDocument
from study_protocol.study.reasons import ANSWERING
from study_protocol.study.settings import StudySettings


def begin_round(coordinator: Coordinator, lease: Lease, study: str) -> None:
    """Open a round in one transaction: the ledger reserves the worst case together with the sample and the deadline."""
    ready = coordinator.database.read("prepare-reservation", lambda tx: _prepare(coordinator, tx, study))
    commit_under_lease(coordinator.database, lease, "reserve", lambda tx: _begin(coordinator, tx, study, ready))


def _prepare(coordinator: Coordinator, tx: Transaction, study: str) -> Statement | None:
    row = rows.find_study(tx, study)
    budget = tx.session.get_one(BudgetRow, row.id)
    if row.state != "running" or not budget.can_continue or due_query(tx, row) is not None:
        return None
    if rows.open_round(tx, row.id) is not None:
        return None
    if not budget_of(tx, coordinator.signer, row).supposing(reserved(tx, row)).authorise().is_allowed:
        return None
    return statement_after(tx, coordinator.signer, row, "reserved", budget.round + 1, {})


def _begin(coordinator: Coordinator, tx: Transaction, study: str, ready: Statement | None) -> None:
    row = rows.lock_study(tx, study)
    expire(tx, row)
    # The worker has looked before the lock: the lead may have been faster.
    answers = row.state == "running" or (row.pause_reason in ANSWERING and rows.settings_of(row).privacy.rules.trains)
    if not answers or rows.open_round(tx, row.id) is not None:
        return
    account = lock_account(tx, coordinator.signer, row)
    query = due_query(tx, row)
    if query is not None:
        _ask(coordinator, tx, row, account, query)
        return
    if row.state != "running":
        return
    _begin_training(coordinator, tx, row, account, ready)


def _begin_training(
    coordinator: Coordinator, tx: Transaction, row: StudyRow, account: LedgerAccount, ready: Statement | None
) -> None:
    """Open a round of training if the budget allows it, end the study if it never will, else wait for questions."""
    reason = account.budget.authorise().reason
    # Before the quorum: a spent study ends whether or not its clients are still there.
    if reason is not None and not account.budget.may_ask:
        # Of a study without rounds of training no step is ever left: what has ended are its queries.
        finish(tx, row, account, reason if account.budget.plan.rounds else "max-queries-reached")
        return
    settings = rows.settings_of(row)
    # The ledger holds no undecided query: what is kept for them only keeps this round from beginning.
    fits = reason is None and account.budget.supposing(reserved(tx, row)).authorise().is_allowed
    if fits and isinstance(settings, StudySettings):
        _train(coordinator, tx, row, account, settings, ready)
        return
    if reason is not None:
        evaluate_last(tx, row)
    # Questions may still come. Those that fall due are looked up by themselves, and every one that ends has a look
    # follow.
    row.next_round_at = NEVER


def _train(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    account: LedgerAccount,
    settings: StudySettings,
    ready: Statement | None,
) -> None:
    """Open a round of training if the quorum is there."""
    active = [client.name for client in rows.clients(tx, study.id) if client.state == "active"]
    if len(active) < study.quorum:
        return
    # A number is never used again, even of a cancelled round: noise is addressed by it, and shares are opened once.
    number = account.budget.last_round + 1
    account.record("reserved", number, {}, ready)
    heads = partial(coordinator.coins.heads, round_number=number)
    sampled = sample(active, settings.privacy.client_sampling_rate, heads)
    round = _write_round(tx, study, number, sampled, base=_newest_model(tx, study))
    plan = None if settings.privacy.masking is None else _training_session(tx, study, round, settings, account.newest)
    _open_session(coordinator, tx, study, account, round, sampled, plan, drawn_of=len(active))


def _ask(coordinator: Coordinator, tx: Transaction, study: StudyRow, account: LedgerAccount, query: QueryRow) -> None:
    """Open a round for the query: its cost is reserved, and every hospital that consents is asked."""
    document, settings = QueryDocument.model_validate(query.document), rows.settings_of(study)
    require_queries_as_charged(tx, study, query.sha256)
    cost, tally = document.cost(), consents(tx, study, query.number)
    query.due_at = None
    sampled = sorted(tally.granted & tally.active)
    # What is kept for it was taken out for others already, so that it fits. One without must leave them theirs.
    other_costs = [] if query.reserved_until is not None else reserved(tx, study, without=document)
    authorisation = account.budget.supposing(other_costs).authorise_query(cost)
    opened = round_that_opened(tx, study, query.sha256) is not None
    if not opened and authorisation.reason is not None and account.budget.authorise_query(cost).is_allowed:
        # Only what is kept for others is in its way, and that may become free.
        query.due_at = tx.now() + settings.schedule.round_deadline_seconds
        return
    if opened or authorisation.reason is not None or len(sampled) < tally.needed:
        # Hospitals have left since it was let in, or others were charged before one that keeps nothing.
        fail(tx, study, query, "query-opened" if opened else authorisation.reason or "too-few-clients")
        return
    _open_query(coordinator, tx, study, account, query, document, sampled)


def _open_query(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    account: LedgerAccount,
    query: QueryRow,
    document: QueryDocument,
    sampled: list[str],
) -> None:
    number, masking = account.budget.last_round + 1, rows.settings_of(study).privacy.masking
    account.record("asked", number, {"query": query.sha256, "cost": document.cost().to_dict()})
    query.state, query.round = "asked", number
    round = _write_round(tx, study, number, sampled, query=query.number)
    plan = None if masking is None else _query_session(tx, study, round, document, account.newest)
    _open_session(coordinator, tx, study, account, round, sampled, plan, drawn_of=len(sampled))


def _query_session(
    tx: Transaction, study: StudyRow, round_row: RoundRow, document: QueryDocument, charge: Entry
) -> SessionPlan:
    number = document.question.model_number
    return SessionPlan.of_query(
        rows.settings_of(study),
        document,
        study=study.name,
        round_number=round_row.number,
        roster=study.roster_sha256,
        # An evaluation is of one model. Other questions are of the records alone.
        model=None if number is None else tx.session.get_one(ModelRow, (study.id, number)).sha256,
        ledger=(charge.sequence, charge.sha256),
    )


def _newest_model(tx: Transaction, study: StudyRow) -> ModelRow:
    base = rows.latest_model(tx, study.id)
    if base is None:
        raise LookupError("a running study has no model: restore the database from its backup")
    return base


def _training_session(
    tx: Transaction, study: StudyRow, round_row: RoundRow, settings: StudySettings, charge: Entry
) -> SessionPlan:
    base = tx.session.get_one(ModelRow, (study.id, round_row.base_version))
    return SessionPlan.of(
        settings,
        rows.model_spec_of(study),
        study=study.name,
        round_number=round_row.number,
        roster=study.roster_sha256,
        model=base.sha256,
        ledger=(charge.sequence, charge.sha256),
        clip_norm=base.clip_norm,
        attempt=attempt_under_way(tx, study),
    )


def _open_session(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    account: LedgerAccount,
    round_row: RoundRow,
    sampled: list[str],
    plan: SessionPlan | None,
    *,
    drawn_of: int,
) -> None:
    """Sign the parameters of the round's secure sum, if it has one. The round waits as long as they say.

    If no session of these clients is sound, the round is abandoned, and free.
    """
    if plan is None:
        return
    try:
        parameters = plan.parameters(len(sampled), session=coordinator.coins.session(round_row.number), now=tx.now())
    except ParameterFault as fault:
        abandon_round(tx, study, round_row, account, no_session(fault, len(sampled), members=drawn_of))
        return
    raw = parameters.to_bytes()
    statement = transcript.parameters_statement(transcript.parameters_hash(raw))
    keys = {client.name: client.public_key for client in rows.clients(tx, study.id) if client.state == "active"}
    # The session has deadlines of its own. The round lives as long as it may.
    round_row.deadline = float(parameters.expires)
    tx.session.add(
        SessionRow(
            study_id=study.id,
            round=round_row.number,
            parameters=raw,
            signature=coordinator.signer.sign_statement(statement),
            # The possible participants, and beside them the members of the pinned fingerprint.
            roster={name: keys[name] for name in sampled},
            members=keys,
            due_at=float(parameters.deadlines.keys),
        )
    )


def _write_round(
    tx: Transaction,
    study: StudyRow,
    number: int,
    sampled: list[str],
    *,
    base: ModelRow | None = None,
    query: int | None = None,
) -> RoundRow:
    row = RoundRow(
        study_id=study.id,
        number=number,
        state="collecting",
        base_version=None if base is None else base.version,
        query=query,
        started_at=tx.now(),
        deadline=tx.now() + rows.settings_of(study).schedule.round_deadline_seconds,
    )
    tx.session.add(row)
    # Without a relationship() SQLAlchemy does not know that the participants' rows need this one first.
    tx.session.flush()
    tx.session.add_all(
        ParticipantRow(study_id=study.id, round=number, client=client, state="sampled") for client in sampled
    )
    rows.append_event(tx, study, "round-opened", number)
    return row
