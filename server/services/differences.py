"""A study whose rows are not what was signed is stopped for good: nothing may be built on it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from server.db import rows
from server.db.comparison import DatabaseDiffers
from server.db.ledger_store import require_unchanged
from server.db.session import Transaction
from server.db.session_store import has_ended, load_session, lock_session, store_phase
from server.domain.errors import Rejected
from server.domain.rounds import move
from server.services.coordinator import Coordinator

logger = logging.getLogger("wardround.coordinator")
T = TypeVar("T")
WHAT_TO_DO = (
    "somebody changed the database without the coordinator's key: keep a copy of it, find out who, and restore "
    "database and files together from a backup, or open a new study"
)


def stopping_where_rows_differ(coordinator: Coordinator, work: Callable[[], T]) -> T:
    """What `work` returns; where it finds rows that are not what was signed, the study is stopped first.

    Raises:
        Rejected: `study-finished` with what differs and what to do; and whatever `work` raises.
    """
    try:
        return work()
    except DatabaseDiffers as difference:
        stop_differing(coordinator, difference)
        detail = f"{difference.what}; {WHAT_TO_DO}"
        raise Rejected("study-finished", detail, stop_reason="database-differs") from difference


def stop_differing(coordinator: Coordinator, difference: DatabaseDiffers) -> None:
    """Finish the study and the round under way, without a word in the ledger, which others may have written.

    Looked at once more under the study's lock: rows that somebody has set right meanwhile stop nothing.
    """

    def work(tx: Transaction) -> bool:
        row = rows.lock_study(tx, difference.study)
        round = rows.lock_open_round(tx, row.id)
        if row.state == "finished":
            return False
        try:
            require_unchanged(tx, coordinator.signer, row, whole=True)
        except DatabaseDiffers:
            pass
        else:
            return False
        row.state, row.stop_reason = "finished", "database-differs"
        if round is not None:
            session = lock_session(tx, row.id, round.number)
            if session is not None and not has_ended(session):
                # What is not opened yet must never be.
                store_phase(session, replace(load_session(tx, session), phase="failed", failure="stopped"))
            round.state = move(round.state, "stopped")
            round.reason, round.ended_at = "database-differs", tx.now()
            rows.append_event(tx, row, "round-stopped", round.number)
        rows.append_event(tx, row, "database-differs")
        rows.append_event(tx, row, "study-finished")
        return True

    if coordinator.database.write("stop-differing", work):
        extra = {"study": difference.study, "event": "database-differs"}
        logger.critical("%s; the study is stopped: %s", difference.what, WHAT_TO_DO, extra=extra)
