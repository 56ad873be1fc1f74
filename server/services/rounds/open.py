"""Authorise, reserve, sample: the next round begins, or the study ends because it may not."""

from __future__ import annotations

from functools import partial

from client_sdk.protocol.secure_sum import transcript
from client_sdk.protocol.secure_sum.messages import ParameterFault
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.tensors import spec_from_json
from server.db.lease import Lease
from server.db.ledger_store import lock_account, precompute
from server.db.repositories import append_event, clients, latest_model, lock_study, open_round
from server.db.secure_sum_tables import SessionRow
from server.db.session import Transaction
from server.db.tables import BudgetRow, ModelRow, ParticipantRow, RoundRow, StudyRow
from server.domain.sampling import sample
from server.services.commit import commit_under_lease
from server.services.ports import Coordinator
from server.services.rounds.end import abandon_round, finish
from server.services.views import settings_of


def begin_round(coordinator: Coordinator, lease: Lease, study: str) -> None:
    """One transaction: the worst case is reserved in the ledger together with the sample and the deadline."""

    def work(tx: Transaction) -> None:
        row = lock_study(tx, study)
        if row.state != "running" or open_round(tx, row.id) is not None:
            return
        account = lock_account(tx, coordinator.signer, study, row.id)
        authorisation = account.budget.authorise()
        if authorisation.reason is not None:
            finish(tx, row, account, authorisation.reason)
            return
        active = [client.name for client in clients(tx, row.id) if client.state == "active"]
        if len(active) < row.quorum:
            return
        number = account.budget.last_round + 1
        account.record("reserved", number, {})
        settings = settings_of(row)
        heads = partial(coordinator.coins.heads, round=number)
        sampled = sample(active, settings.privacy.client_sampling_rate, heads)
        round = _write_round(tx, row, number, sampled)
        if settings.privacy.masking is None:
            return
        try:
            _open_session(coordinator, tx, row, round, settings, sampled)
        except ParameterFault as fault:
            reason = "too-few-clients" if fault.code == "unreachable-threshold" else fault.code
            abandon_round(tx, row, round, account, reason=reason, charged=False)

    coordinator.database.read("precompute-reservation", lambda tx: _precompute(tx, lease.study_id))
    commit_under_lease(coordinator, lease, "reserve", work)


def _precompute(tx: Transaction, study_id: int) -> None:
    row = tx.session.get_one(BudgetRow, study_id)
    if row.can_continue:
        precompute(tx, study_id, "reserved", row.round + 1, {})


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
    spec = spec_from_json(study.model_spec or {})
    plan = SessionPlan.of(
        settings, spec, study=study.name, round=round.number, roster=study.roster_sha256, model=base.sha256
    )
    parameters = plan.parameters(len(sampled), session=coordinator.coins.session(round.number), now=tx.now())
    raw = parameters.to_bytes()
    statement = transcript.parameters_statement(transcript.parameters_hash(raw))
    keys = {client.name: client.public_key for client in clients(tx, study.id) if client.state == "active"}
    round.deadline = float(parameters.expires)
    tx.session.add(
        SessionRow(
            study_id=study.id,
            round=round.number,
            parameters=raw,
            signature=coordinator.signer.sign_statement(statement),
            roster={name: keys[name] for name in sampled},
            members=keys,
            phase="keys",
            due_at=float(parameters.deadlines.keys),
            cohort=[],
            sharers=[],
            survivors=[],
            opened=False,
            replies=0,
            tried=0,
        )
    )


def _write_round(tx: Transaction, study: StudyRow, number: int, sampled: list[str]) -> RoundRow:
    base = latest_model(tx, study.id)
    if base is None:
        raise LookupError("a running study has no model: restore the database from its backup")
    row = RoundRow(
        study_id=study.id,
        number=number,
        state="collecting",
        base_version=base.version,
        started_at=tx.now(),
        deadline=tx.now() + settings_of(study).schedule.round_deadline_seconds,
    )
    tx.session.add(row)
    tx.session.flush()
    tx.session.add_all(
        ParticipantRow(study_id=study.id, round=number, client=client, state="sampled") for client in sampled
    )
    append_event(tx, study, "round-opened", number)
    return row
