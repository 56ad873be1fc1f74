"""End of collecting: charge the round before its updates are used, or abandon it. And how a study ends.

Functions that take a transaction run inside their caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select, update

from accounting.plan.report import report_to_dict
from server.db import rows
from server.db.blobs import Blobs, Place, sum_of, update_of
from server.db.leases import Lease, commit_under_lease
from server.db.ledger_store import LedgerAccount, Statement, lock_account, statement_after
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.session_store import end_of, has_ended, load_session, lock_session, opened_sums, store_phase
from server.db.tables import LedgerRow, RoundRow, SessionRow, StudyRow
from server.domain.rounds import (
    ANY_REASON,
    Abandon,
    Collected,
    Settle,
    Values,
    abandonment,
    entry_of,
    move,
    pause_after,
    pauses,
    round_report,
    settled,
    shows_reports,
    was_seen,
)
from server.domain.secure_sum_session import changed
from server.services.coordinator import Coordinator
from server.services.queries.schedule import look_again
from study_protocol.secure_sum.parameters import ANSWER, UPDATE
from study_protocol.secure_sum.vectors import EncodingError, VectorSpec, decode
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import RoundState, StopReason
from study_protocol.study.plan_of import plan_of
from study_protocol.study.reasons import STUDY_FINISHED, in_words
from study_protocol.study.settings import StudySettings

logger = logging.getLogger("wardround.worker")


@dataclass(frozen=True)
class _Due:
    """A round whose collecting ends now, as its rows say. `updates` and `sums` name files: (place, SHA-256)."""

    settings: AnySettings
    asks: bool
    publishes: bool
    collected: Collected
    updates: tuple[tuple[Place, str], ...]
    sums: tuple[tuple[VectorSpec, Place, str], ...]


def close_round(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """Decide how collecting ends, then commit it in one transaction if the round is still as it was seen.

    Files are read, and the budget's next statement is computed, while no row is locked. If an update has arrived
    meanwhile no row is changed: the round is still due, and the worker's next look decides again.
    """
    database = coordinator.database
    due = database.read("read-due-round", lambda tx: _due(tx, study, number))
    if due is None:
        return
    decided = _decided(coordinator.blobs, due)

    def unchanged(tx: Transaction) -> bool:
        return _due(tx, study, number) == due

    def prepare(tx: Transaction) -> Statement | None:
        kind, body = entry_of(decided, due.settings)
        if not unchanged(tx):
            return None
        return statement_after(tx, coordinator.signer, rows.find_study(tx, study), kind, number, body)

    # A statement can take long, so no row is locked here.
    ready = database.read("prepare-settlement", prepare)

    def work(tx: Transaction) -> None:
        row = rows.lock_study(tx, study)
        round = rows.lock_round(tx, row.id, number)
        # Asked again under the locks: what was decided holds only for what was seen.
        if not unchanged(tx):
            return
        for participant in rows.participants(tx, round):
            # Its update may be on the way: from here on it is refused.
            if participant.state == "sampled":
                participant.state = "missing"
        account = lock_account(tx, coordinator.signer, row)
        if isinstance(decided, Abandon):
            abandon_round(tx, row, round, account, decided, ready)
            return
        kind, body = entry_of(decided, due.settings)
        account.conclude(kind, round, body, ready)
        look_again(row)
        session = rows.find_session(tx, row.id, number)
        if session is not None:
            session.reported = report_to_dict(decided.report)
        round.state = move(round.state, "settled")
        rows.append_event(tx, row, "round-settled", number)

    commit_under_lease(database, lease, "settle", work)


def _due(tx: Transaction, study: str, number: int) -> _Due | None:
    row = rows.find_study(tx, study)
    round = rows.find_round(tx, row.id, number)
    sampled = rows.participants(tx, round)
    session = rows.find_session(tx, row.id, number)
    present = rows.attendance(tx, sampled, session)
    is_due = present.is_due(deadline=round.deadline, now=tx.now()) if session is None else has_ended(session)
    if round.state != "collecting" or not is_due:
        return None
    masked, sums = _opened(study, number, session)
    in_the_clear = ((update_of(study, number, row.client), row.sha256) for row in sampled if row.sha256 is not None)
    settings = rows.settings_of(row)
    return _Due(
        settings=settings,
        asks=round.query is not None,
        publishes=plan_of(settings).publishes(number),
        collected=Collected(
            present,
            rows.findings(sampled),
            None if session is None else end_of(session),
            rows.refusals(sampled),
            sampled=len(sampled),
        ),
        # Under masks a participant's hash is no file of its own: what is needed of its update is in the sum.
        updates=masked or tuple(in_the_clear),
        sums=sums,
    )


def _opened(
    study: str, number: int, session: SessionRow | None
) -> tuple[tuple[tuple[Place, str], ...], tuple[tuple[VectorSpec, Place, str], ...]]:
    """Return the files of the round's opened sums: those of updates and answers, and those of the reports."""
    files = [(spec, sum_of(study, number, spec.name), sha256) for spec, sha256 in opened_sums(session)]
    updates = tuple((place, sha256) for spec, place, sha256 in files if spec.name in (UPDATE, ANSWER))
    return updates, tuple(file for file in files if file[0].name not in (UPDATE, ANSWER))


def _decided(blobs: Blobs, due: _Due) -> Settle | Abandon:
    lost = not all(blobs.has(place, sha256) for place, sha256 in due.updates)
    abandoned = abandonment(due.settings.schedule.min_clients, due.collected, lost=lost)
    if abandoned is not None:
        return abandoned
    # A query has no cost to report: it is known beforehand.
    if due.asks or not isinstance(due.settings, StudySettings):
        return Settle(None)
    return settled(due.settings, due.collected, dict(_readable(blobs, due.sums)), publishes=due.publishes)


def _readable(blobs: Blobs, sums: Iterable[tuple[VectorSpec, Place, str]]) -> Iterable[tuple[str, Values]]:
    """Return the opened sums by name. One whose file is gone, or that is beyond its range, is left out."""
    for spec, place, sha256 in sums:
        file = blobs.open(place, sha256)
        if file is None:
            continue
        with file:
            words = np.frombuffer(file.read(0, file.bytes), spec.dtype)
        try:
            yield spec.name, decode(spec, words)
        except EncodingError as error:
            logger.warning("a sum cannot be read", extra={"event": place.key(sha256)}, exc_info=error)


def abandon_round(
    tx: Transaction,
    study: StudyRow,
    round_row: RoundRow,
    account: LedgerAccount,
    ending: Abandon,
    ready: Statement | None = None,
) -> None:
    """Abandon the round. If it is not settled yet, it is charged in full or cancelled.

    If the next ones would fail, too, the study pauses until a person resumes it.
    """
    if round_row.query is not None:
        # The lead decides whether to ask again. Training goes on.
        _end(tx, study, round_row, account, "abandoned", ending, ready)
        return
    study.abandoned_in_a_row += 1
    study.next_round_at = tx.now() + pause_after(study.abandoned_in_a_row)
    _end(tx, study, round_row, account, "abandoned", ending, ready)
    # The charge stays: a pause only keeps the next round from being reserved.
    if study.state == "running" and pauses(_reasons(tx, study)):
        rows.enter_state(tx, study, "paused", pause_reason=ending.reason)
        logger.warning("paused: %s", in_words(ending.reason), extra={"study": study.name, "event": ending.reason})


def _reasons(tx: Transaction, study: StudyRow) -> list[str]:
    """Return the reasons of the rounds abandoned in a row since the last release or resumption, the newest first."""
    abandoned = (RoundRow.study_id == study.id, RoundRow.state == "abandoned", RoundRow.query.is_(None))
    statement = select(RoundRow.reason).where(*abandoned)
    reasons = tx.session.scalars(
        statement.order_by(RoundRow.number.desc()).limit(min(study.abandoned_in_a_row, ANY_REASON))
    )
    return [reason or "" for reason in reasons]


def stop_round(tx: Transaction, study: StudyRow, round_row: RoundRow, account: LedgerAccount) -> None:
    """Stop the round when the lead stops the study: accepted updates are paid for, and no model is released."""
    session = lock_session(tx, study.id, round_row.number)
    present = rows.attendance(tx, rows.participants(tx, round_row), session)
    charged = was_seen(present, None if session is None else end_of(session))
    if session is not None and not has_ended(session):
        # Sums that are not opened yet must never be, since the ledger may give the charge back.
        stopped = changed(load_session(tx, session), phase="failed", failure="stopped")
        store_phase(tx, session, stopped)
    _end(tx, study, round_row, account, "stopped", Abandon("stopped", charged))


def finish(tx: Transaction, study: StudyRow, account: LedgerAccount, reason: StopReason) -> None:
    """Finish the study: no round follows."""
    # First: the ledger refuses an end in the middle of a round.
    account.record("finished", None, {"reason": reason, "report": _withheld(tx, study)})
    # A request for an answer must not wait for ever.
    waiting = (QueryRow.study_id == study.id, QueryRow.state == "waiting")
    tx.session.execute(update(QueryRow).where(*waiting).values(state="failed", reason=STUDY_FINISHED, due_at=None))
    rows.enter_state(tx, study, "finished", stop_reason=reason)


def _end(
    tx: Transaction,
    study: StudyRow,
    round_row: RoundRow,
    account: LedgerAccount,
    state: RoundState,
    ending: Abandon,
    ready: Statement | None = None,
) -> None:
    # A settled round is charged already, and a ledger has one ending for each round.
    if round_row.state != "settled":
        kind, body = entry_of(ending, rows.settings_of(study))
        account.conclude(kind, round_row, body, ready)
        look_again(study)
    round_row.state = move(round_row.state, state)
    round_row.reason, round_row.ended_at = ending.reason, tx.now()
    if round_row.query is not None:
        query = tx.session.get_one(QueryRow, (study.id, round_row.query))
        query.state, query.reason = "failed", ending.reason
    rows.append_event(tx, study, f"round-{state}", round_row.number)


def _withheld(tx: Transaction, study: StudyRow) -> list[dict[str, Any] | None] | None:
    """Return the reports of all charged rounds in order, for the last entry, or None without disclosure `at-end`."""
    settings = rows.settings_of(study)
    if not isinstance(settings, StudySettings) or shows_reports(settings) or settings.privacy.bayesian is None:
        return None
    charged = select(LedgerRow).where(
        LedgerRow.study_id == study.id, LedgerRow.kind.in_(("settled", "charged-in-full"))
    )
    entries = tx.session.scalars(charged.order_by(LedgerRow.sequence)).all()
    query_rounds = set(
        tx.session.scalars(select(RoundRow.number).where(RoundRow.study_id == study.id, RoundRow.query > 0))
    )
    return [_report_behind(tx, study, settings, entry) for entry in entries if entry.round not in query_rounds]


def _report_behind(
    tx: Transaction, study: StudyRow, settings: StudySettings, entry: LedgerRow
) -> dict[str, Any] | None:
    # Its charge was the worst case: a report would lower it afterwards.
    if entry.kind == "charged-in-full" or entry.round is None:
        return None
    session = rows.find_session(tx, study.id, entry.round)
    if session is not None:
        return session.reported
    sampled = rows.participants(tx, rows.find_round(tx, study.id, entry.round))
    return report_to_dict(round_report(settings, rows.findings(sampled), rows.attendance(tx, sampled, None)))
