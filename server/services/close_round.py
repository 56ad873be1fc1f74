"""End collecting: charge the round before anything is made of it, or abandon it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

from accounting.accounts import distance_edges
from accounting.evidence import CumulativeMoments, Evidence, evidence_from_dict, evidence_to_dict
from accounting.plan import Plan
from client_sdk.protocol.fixed_point import EncodingError
from client_sdk.protocol.secure_sum_messages import Parameters
from client_sdk.protocol.secure_sum_vectors import decode
from client_sdk.protocol.session_vectors import UPDATE
from client_sdk.protocol.settings import StudySettings
from server.db.lease import Lease
from server.db.ledger_store import lock_account, rehearse
from server.db.repositories import append_event, attendance, clients, lock_round, lock_study, participants
from server.db.secure_sum_tables import SessionRow
from server.db.session import Transaction
from server.db.session_store import find_session
from server.db.tables import ParticipantRow, RoundRow, StudyRow
from server.domain.admission import Findings
from server.domain.evidence import Attended, Values, evidence_of, summed_evidence
from server.domain.rounds import Abandon, Settle, close, move
from server.services import fenced
from server.services.end_round import abandon_round, was_seen
from server.services.ports import Coordinator
from server.services.submit_update import update_scope
from server.services.sum_session import sum_words
from server.services.views import settings_of

logger = logging.getLogger("wardround.worker")
_ENDED = ("summed", "failed")


def close_round(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """One transaction: whoever has not answered is missing, and the round's cost is settled in the ledger."""

    def work(tx: Transaction) -> None:
        row = lock_study(tx, study)
        round = lock_round(tx, row.id, number)
        rows = participants(tx, round)
        seen = attendance(rows)
        session = find_session(tx, row.id, number)
        due = seen.is_due(deadline=round.deadline, now=tx.now()) if session is None else session.phase in _ENDED
        if round.state != "collecting" or not due:
            return
        for participant in rows:
            if participant.state == "sampled":
                participant.state = "missing"
        account = lock_account(tx, coordinator.signer, study, row.id)
        ending = close(seen, min_clients=settings_of(row).schedule.min_clients)
        if session is not None and session.failure is not None:
            ending = Abandon(session.failure, charged=was_seen(tx, round))
        if isinstance(ending, Settle) and _lost(coordinator, study, rows, session):
            ending = Abandon("updates-lost", charged=True)
        if isinstance(ending, Abandon):
            abandon_round(tx, row, round, account, reason=ending.reason, charged=ending.charged)
            return
        if session is None:
            evidence = _told(settings_of(row), account.budget.plan, rows, ending)
        else:
            evidence = _summed(coordinator, tx, row, round, account.budget.plan, rows, session)
        account.record("settled", round.number, {"evidence": evidence_to_dict(evidence)})
        round.state = move(round.state, "settled")
        append_event(tx, row, "round-settled", round.number)

    coordinator.database.read("rehearse-settlement", lambda tx: rehearse(tx, lease.study_id, settling=True))
    fenced.commit(coordinator, lease, "settle", work)


def _told(settings: StudySettings, plan: Plan, rows: Sequence[ParticipantRow], ending: Settle) -> Evidence | None:
    """What the updates themselves said of the round's cost."""
    findings = [findings_of(row) for row in rows if row.state == "received"]
    edges = list(distance_edges(plan)) if plan.scheme == "client" else []
    return evidence_of(settings, findings, missing=ending.silent, edges=edges)


def _summed(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    round: RoundRow,
    plan: Plan,
    rows: Sequence[ParticipantRow],
    session: SessionRow,
) -> Evidence | None:
    """What the opened sums say of it."""
    survivors = set(session.survivors)
    attended = Attended(
        survivors=len(survivors),
        missing=sum(row.state == "missing" for row in rows),
        complete={client.name for client in clients(tx, study.id)} == survivors,
        unreported=any(row.state == "received" and row.client not in survivors for row in rows),
    )
    sums = _term_sums(coordinator, study.name, session)
    return summed_evidence(settings_of(study), sums, attended, publishes=plan.publishes(round.number))


def _term_sums(coordinator: Coordinator, study: str, session: SessionRow) -> dict[str, Values]:
    """The opened sums of everything but updates; a vector beyond its range says nothing."""
    found: dict[str, Values] = {}
    for spec in Parameters.from_bytes(session.parameters).vectors:
        words = None if spec.name == UPDATE else sum_words(coordinator, study, session, spec)
        if words is None:
            continue
        try:
            found[spec.name] = decode(spec, words)
        except EncodingError as error:
            logger.warning("a sum cannot be read", extra={"study": study, "event": spec.name}, exc_info=error)
    return found


def findings_of(row: ParticipantRow) -> Findings:
    """What was kept of an update beside its bytes."""
    return Findings(row.distance, cast(CumulativeMoments | None, evidence_from_dict(row.terms)))


def _lost(coordinator: Coordinator, study: str, rows: Sequence[ParticipantRow], session: SessionRow | None) -> bool:
    spec = None if session is None else Parameters.from_bytes(session.parameters).vector(UPDATE)
    if session is not None and spec is not None:
        return sum_words(coordinator, study, session, spec) is None
    return any(
        coordinator.blobs.find(update_scope(study, row.round, row.client), row.sha256) is None
        for row in rows
        if row.sha256 is not None
    )
