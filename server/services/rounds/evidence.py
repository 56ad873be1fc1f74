"""What the rows of a round say about its cost, and when that is written where everybody reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import select

from accounting.budget.accounts import distance_edges
from accounting.plan.evidence import CumulativeMoments, Evidence, evidence_from_dict, evidence_to_dict
from accounting.plan.plan import Plan
from client_sdk.protocol.study.settings import StudySettings
from server.db.repositories import find_round, participants
from server.db.session import Transaction
from server.db.session_store import find_session
from server.db.tables import BudgetRow, LedgerRow, ParticipantRow, StudyRow
from server.domain.admission import Findings
from server.domain.evidence import evidence_of
from server.services.views import settings_of


def settlement(
    tx: Transaction, study: StudyRow, plan: Plan, round: int, rows: Sequence[ParticipantRow]
) -> dict[str, Any]:
    """The body of the ledger's entry that settles a round. Clients and viewers read it as soon as it is written."""
    evidence = evidence_in(tx, study, plan, round, rows) if shows_evidence(settings_of(study)) else None
    return {"evidence": evidence_to_dict(evidence)}


def evidence_in(
    tx: Transaction, study: StudyRow, plan: Plan, round: int, rows: Sequence[ParticipantRow]
) -> Evidence | None:
    """The evidence of a round if collecting ended now; None charges its reservation."""
    session = find_session(tx, study.id, round)
    if session is not None:
        return evidence_from_dict(session.told)
    received = [row for row in rows if row.state == "received"]
    findings = [
        Findings(row.distance, cast(CumulativeMoments | None, evidence_from_dict(row.terms))) for row in received
    ]
    missing = sum(row.state in ("sampled", "missing") for row in rows)
    edges = list(distance_edges(plan)) if plan.scheme == "client" else []
    return evidence_of(settings_of(study), findings, missing=missing, edges=edges)


def shows_evidence(settings: StudySettings) -> bool:
    """Whether each round's evidence is written down as it happens, and acted on."""
    return settings.privacy.disclosure != "public"


def withheld(tx: Transaction, study: StudyRow) -> dict[str, Any]:
    """Disclosure `public`: the evidence of every charged round in order, for the ledger's last entry; else nothing."""
    settings = settings_of(study)
    if shows_evidence(settings) or settings.privacy.bayesian is None:
        return {}
    plan = Plan.from_dict(tx.session.get_one(BudgetRow, study.id).plan)
    charged = select(LedgerRow).where(LedgerRow.study_id == study.id, LedgerRow.kind.in_(("settled", "stood")))
    return {
        "evidence": [_of(tx, study, plan, entry) for entry in tx.session.scalars(charged.order_by(LedgerRow.sequence))]
    }


def _of(tx: Transaction, study: StudyRow, plan: Plan, entry: LedgerRow) -> dict[str, Any] | None:
    if entry.kind == "stood" or entry.round is None:
        return None
    rows = participants(tx, find_round(tx, study.id, entry.round))
    return evidence_to_dict(evidence_in(tx, study, plan, entry.round, rows))
