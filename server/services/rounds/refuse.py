"""Record a hospital's no."""

from __future__ import annotations

from client_sdk.protocol.study.messages import Refusal
from server.db.repositories import lock_participant, lock_study, share_round
from server.db.session import Transaction
from server.db.session_store import lock_session
from server.db.tables import StudyRow
from server.domain.errors import Rejected
from server.domain.ports import Written
from server.services.coordinator import Coordinator
from server.services.secure_sum.exchanges import leave_session
from server.services.views import refusal_of


def refuse(coordinator: Coordinator, study: str, round: int, client: str, refusal: Refusal) -> Written[Refusal]:
    """Repeatable; the first refusal stays.

    Raises:
        Rejected: `unknown-study`, `round-unknown`, `not-sampled`, `round-closed`, `different-update`.
    """

    def work(tx: Transaction) -> Written[Refusal] | None:
        study_row = lock_study(tx, study)
        round_row = share_round(tx, study_row.id, round)
        row = lock_participant(tx, round_row, client)
        recorded = refusal_of(row)
        if recorded is not None:
            return Written(recorded, created=False)
        if row.state == "received":
            # It cannot take its vectors back, but whoever says no opens nothing: nobody waits for it, or asks again.
            _leave_session(tx, study_row, round, client)
            return None
        if row.state == "missing" or round_row.state != "collecting" or tx.now() >= round_row.deadline:
            raise Rejected("round-closed", "the round takes no more answers; ask for the next assignment")
        row.state, row.answered_at = "refused", tx.now()
        row.refusal_code, row.refusal_detail = refusal.code, refusal.detail
        _leave_session(tx, study_row, round, client)
        return Written(refusal, created=True)

    written = coordinator.database.write("refuse", work)
    if written is None:
        raise Rejected("different-update", "this round has an update of yours already")
    return written


def _leave_session(tx: Transaction, study: StudyRow, round: int, client: str) -> None:
    session = lock_session(tx, study.id, round)
    if session is not None:
        leave_session(tx, study, session, client)
