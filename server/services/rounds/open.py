"""Authorise, reserve, sample: the next round begins, or the study ends because it may not."""

from __future__ import annotations

from functools import partial

from client_sdk.protocol.secure_sum import transcript
from client_sdk.protocol.secure_sum.messages import ParameterFault
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.study.reasons import TOO_FEW_DRAWN
from client_sdk.protocol.study.settings import StudySettings
from server.db import rows
from server.db.leases import Lease, commit_under_lease
from server.db.ledger_store import Statement, lock_account, statement_after
from server.db.session import Transaction
from server.db.tables import BudgetRow, ModelRow, ParticipantRow, RoundRow, SessionRow, StudyRow
from server.domain.rounds import Abandon, sample
from server.services.coordinator import Coordinator
from server.services.rounds.close import abandon_round, finish


def begin_round(coordinator: Coordinator, lease: Lease, study: str) -> None:
    """One transaction: the worst case is reserved in the ledger together with the sample and the deadline."""

    def work(tx: Transaction) -> None:
        row = rows.lock_study(tx, study)
        # The worker has looked before the lock: an operator may have been faster.
        if row.state != "running" or rows.open_round(tx, row.id) is not None:
            return
        account = lock_account(tx, coordinator.signer, row)
        authorisation = account.budget.authorise()
        # Before the quorum: a spent study ends whether or not its clients are still there.
        if authorisation.reason is not None:
            finish(tx, row, account, authorisation.reason)
            return
        active = [client.name for client in rows.clients(tx, row.id) if client.state == "active"]
        if len(active) < row.quorum:
            return
        # A number is never used again, even of a cancelled round: noise is addressed by it, and shares are opened once.
        number = account.budget.last_round + 1
        account.record("reserved", number, {}, ready)
        settings = rows.settings_of(row)
        heads = partial(coordinator.coins.heads, round=number)
        sampled = sample(active, settings.privacy.client_sampling_rate, heads)
        round = _write_round(tx, row, number, sampled)
        if settings.privacy.masking is None:
            return
        try:
            _open_session(coordinator, tx, row, round, settings, sampled)
        except ParameterFault as fault:
            # Free, because nobody has been asked yet.
            too_few = fault.code in ("too-few-clients", "unreachable-threshold")
            chance = too_few and len(sampled) < len(active)
            reason = TOO_FEW_DRAWN if chance else "too-few-clients" if too_few else fault.code
            abandon_round(tx, row, round, account, Abandon(reason, charged=False))

    ready = coordinator.database.read("prepare-reservation", lambda tx: _prepare(coordinator, tx, study))
    commit_under_lease(coordinator.database, lease, "reserve", work)


def _prepare(coordinator: Coordinator, tx: Transaction, study: str) -> Statement | None:
    row = rows.find_study(tx, study)
    budget = tx.session.get_one(BudgetRow, row.id)
    if not budget.can_continue:
        return None
    return statement_after(tx, coordinator.signer, row, "reserved", budget.round + 1, {})


def _open_session(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    round: RoundRow,
    settings: StudySettings,
    sampled: list[str],
) -> None:
    """Sign the parameters of the round's secure sum; the round waits as long as they say.

    Raises:
        ParameterFault: no session of these clients is sound; nothing is written.
    """
    base = tx.session.get_one(ModelRow, (study.id, round.base_version))
    plan = SessionPlan.of(
        settings,
        rows.model_spec_of(study),
        study=study.name,
        round=round.number,
        roster=study.roster_sha256,
        model=base.sha256,
    )
    parameters = plan.parameters(len(sampled), session=coordinator.coins.session(round.number), now=tx.now())
    raw = parameters.to_bytes()
    statement = transcript.parameters_statement(transcript.parameters_hash(raw))
    keys = {client.name: client.public_key for client in rows.clients(tx, study.id) if client.state == "active"}
    # The session has deadlines of its own; the round lives as long as it may.
    round.deadline = float(parameters.expires)
    tx.session.add(
        SessionRow(
            study_id=study.id,
            round=round.number,
            parameters=raw,
            signature=coordinator.signer.sign_statement(statement),
            # Who may take part, and beside it whom the pinned fingerprint is of.
            roster={name: keys[name] for name in sampled},
            members=keys,
            due_at=float(parameters.deadlines.keys),
        )
    )


def _write_round(tx: Transaction, study: StudyRow, number: int, sampled: list[str]) -> RoundRow:
    base = rows.latest_model(tx, study.id)
    if base is None:
        raise LookupError("a running study has no model: restore the database from its backup")
    row = RoundRow(
        study_id=study.id,
        number=number,
        state="collecting",
        base_version=base.version,
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
