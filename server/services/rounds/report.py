"""What the rows of a round say about its cost, and when that is written where everybody reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import select

from accounting.plan.report import CumulativeMoments, RoundReport, report_from_dict, report_to_dict
from client_sdk.protocol.study.settings import StudySettings
from server.db.repositories import find_round, participants
from server.db.session import Transaction
from server.db.session_store import find_session
from server.db.tables import LedgerRow, ParticipantRow, StudyRow
from server.domain.admission import Findings
from server.domain.report import report_of
from server.services.views import settings_of


def settlement(tx: Transaction, study: StudyRow, round: int, rows: Sequence[ParticipantRow]) -> dict[str, Any]:
    """The body of the ledger's entry that settles a round. Clients and viewers read it as soon as it is written."""
    report = report_in(tx, study, round, rows) if shows_reports(settings_of(study)) else None
    return {"report": report_to_dict(report)}


def report_in(tx: Transaction, study: StudyRow, round: int, rows: Sequence[ParticipantRow]) -> RoundReport | None:
    """The report of a round if collecting ended now; None: it is charged in full."""
    session = find_session(tx, study.id, round)
    if session is not None:
        return report_from_dict(session.reported)
    received = [row for row in rows if row.state == "received"]
    findings = [
        Findings(row.distance, cast(CumulativeMoments | None, report_from_dict(row.log_moments))) for row in received
    ]
    missing = sum(row.state in ("sampled", "missing") for row in rows)
    return report_of(settings_of(study), findings, missing=missing)


def shows_reports(settings: StudySettings) -> bool:
    """Whether each round's report is written down as it happens, and acted on."""
    return settings.privacy.disclosure != "at-end"


def withheld(tx: Transaction, study: StudyRow) -> dict[str, Any]:
    """Disclosure `at-end`: the report of every charged round in order, for the ledger's last entry; else nothing."""
    settings = settings_of(study)
    if shows_reports(settings) or settings.privacy.bayesian is None:
        return {}
    charged = select(LedgerRow).where(
        LedgerRow.study_id == study.id, LedgerRow.kind.in_(("settled", "charged-in-full"))
    )
    return {"report": [_of(tx, study, entry) for entry in tx.session.scalars(charged.order_by(LedgerRow.sequence))]}


def _of(tx: Transaction, study: StudyRow, entry: LedgerRow) -> dict[str, Any] | None:
    if entry.kind == "charged-in-full" or entry.round is None:
        return None
    rows = participants(tx, find_round(tx, study.id, entry.round))
    return report_to_dict(report_in(tx, study, entry.round, rows))
