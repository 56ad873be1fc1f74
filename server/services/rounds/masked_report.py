"""What the opened sums of a round say of its cost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from accounting.plan.plan import Plan
from accounting.plan.report import RoundReport
from client_sdk.protocol.secure_sum.fixed_point import EncodingError
from client_sdk.protocol.secure_sum.layout import UPDATE
from client_sdk.protocol.secure_sum.messages import SessionParameters
from client_sdk.protocol.secure_sum.vectors import decode
from server.db.repositories import clients
from server.db.secure_sum_tables import SessionRow
from server.db.session import Transaction
from server.db.tables import ParticipantRow, StudyRow
from server.domain.report import Attended, Values, masked_report
from server.services.ports import Coordinator
from server.services.secure_sum.progress import sum_words
from server.services.views import settings_of

logger = logging.getLogger("wardround.worker")


def summed_by(
    coordinator: Coordinator,
    tx: Transaction,
    study: StudyRow,
    session: SessionRow,
    plan: Plan,
    rows: Sequence[ParticipantRow],
) -> RoundReport | None:
    """The report of a round whose sums are open; None: the round is charged in full."""
    survivors = set(session.survivors)
    attended = Attended(
        survivors=len(survivors),
        missing=sum(row.state == "missing" for row in rows),
        complete={client.name for client in clients(tx, study.id)} == survivors,
        unreported=any(row.state == "received" and row.client not in survivors for row in rows),
    )
    sums = _term_sums(coordinator, study.name, session)
    return masked_report(settings_of(study), sums, attended, publishes=plan.publishes(session.round))


def _term_sums(coordinator: Coordinator, study: str, session: SessionRow) -> dict[str, Values]:
    """The opened sums of everything but updates; a vector beyond its range says nothing."""
    found: dict[str, Values] = {}
    for spec in SessionParameters.from_bytes(session.parameters).vectors:
        words = None if spec.name == UPDATE else sum_words(coordinator, study, session, spec)
        if words is None:
            continue
        try:
            found[spec.name] = decode(spec, words)
        except EncodingError as error:
            logger.warning("a sum cannot be read", extra={"study": study, "event": spec.name}, exc_info=error)
    return found
