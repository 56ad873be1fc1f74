"""Finds what can be done now and does it: one study at a time under a lease, every commit fenced."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import and_, exists, func, or_, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from server.db.leases import Lease, LeaseLost, acquire, is_free_for, release
from server.db.ledger_store import require_unchanged
from server.db.notifications import ChangeDetector
from server.db.query_tables import QueryRow
from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import BudgetRow, ClientRow, LeaseRow, ParticipantRow, RoundRow, SessionRow, StudyRow
from server.domain.rounds import IllegalMove
from server.domain.secure_sum_session import Phase
from server.services.coordinator import Coordinator
from server.services.queries.schedule import overdue
from server.services.rounds.answer import answer_query
from server.services.rounds.close import close_round
from server.services.rounds.open import begin_round
from server.services.rounds.release import release_round
from server.services.rounds.scrub import scrub_round, tidy
from server.services.secure_sum.progress import advance_session, open_sums
from server.services.tampered_studies import stop_differing
from study_protocol.study.messages import RoundState
from study_protocol.study.reasons import ANSWERING

# Leftovers only cost space.
_TIDY_SECONDS = 3600.0
_PAUSE_AFTER_FAILURE_SECONDS = 5.0
# Between two looks at unannounced work, while more and more of it comes.
_LONGEST_PAUSE_SECONDS = 1.0
# A clock is set, a machine sleeps: what is due by the database's clock is looked up again.
_LONGEST_WAIT_SECONDS = 2.0
# A step that takes longer renews its lease this often before it would run out.
_RENEWALS = 3
logger = logging.getLogger("wardround.worker")
Kind = Literal["open", "advance", "sum", "close", "release", "answer", "scrub"]


@dataclass(frozen=True)
class WorkItem:
    """One step of one study. `round` is 0 when the step opens a new one."""

    study_id: int
    study: str
    kind: Kind
    round: int


class Worker:
    """A worker. Any number may run, in threads or processes. Killing one at any moment loses no work.

    Args:
        poll_seconds: pause before it looks for commits of other processes. It grows, up to a second, while there are
        many
            of them and no step is due.
        lease_seconds: how long a study waits for this worker after its last commit.
        owner: unique among all workers, by default from host, process and chance.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        poll_seconds: float = 0.2,
        lease_seconds: float = 5.0,
        owner: str | None = None,
    ) -> None:
        self.owner = owner or f"{socket.gethostname()[:32]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._coordinator = coordinator
        self._poll_seconds = self._pause_seconds = poll_seconds
        self._lease_seconds = lease_seconds
        self._leases: dict[int, Lease] = {}
        self._renewed: dict[int, float] = {}
        self._paused_until: dict[int, float] = {}
        self._tidy_at = 0.0
        self._changes = ChangeDetector(coordinator.database)
        # Of this machine's own clock: when something falls due without anybody's doing.
        self._due_at = 0.0
        self._news = threading.Event()
        self._stopping = threading.Event()
        coordinator.database.listen(lambda study, number: self.wake(), work=True)

    def run(self) -> None:
        """Work until `stop`. Blocks: give it a thread or a process."""
        while not self._stopping.is_set():
            # Before the look: news that come during it end the wait below at once.
            self._news.clear()
            if not self._pass():
                self._wait()
        # If the database is away they run out by themselves.
        with suppress(SQLAlchemyError):
            self._let_go()
            self._changes.close()

    def step(self) -> bool:
        """Take every step that is due now. When there was none: give the leases back, False. Raises what goes wrong."""
        moved = [self.perform(task) for task in self._tasks()]
        if not any(moved):
            self._let_go()
        return any(moved)

    def perform(self, task: WorkItem) -> bool:
        """Take one step under the study's lease, and return False when another worker holds it."""
        began = time.monotonic()
        try:
            lease = self._hold(task)
            if lease is None:
                return False
            began = time.monotonic()
            with self._coordinator.observer.step(task.kind):
                self._move(task, lease)
        except LeaseLost:
            # It is void for good: the next look asks for a new one.
            self._leases.pop(task.study_id, None)
            self._tell_lost(task, time.monotonic() - began)
            return False
        except IllegalMove:
            # The lead ended the round while this step was under way. The next look finds the rest of the work.
            logger.info("round ended meanwhile", extra={"study": task.study, "round": task.round})
        except DBAPIError:
            raise
        except Exception:
            # If the rows differ from what was signed, that is the cause. Otherwise it is a failure.
            if not stop_differing(self._coordinator, task.study)[1]:
                raise
        self._renewed[task.study_id] = time.monotonic()
        return True

    def _tell_lost(self, task: WorkItem, seconds: float) -> None:
        """Log that the lease was lost: the step was not committed.

        A lease runs out while its study waits for hospitals, and the first worker that finds the next step goes on.
        Several workers share their studies in this way, and it costs this one a look. Lost in the middle of a long
        step, the work is done again by another: this process or its database stood still, or was too slow for the
        lease.
        """
        details = {"study": task.study, "round": task.round, "event": task.kind, "owner": self.owner}
        if seconds > self._lease_seconds / _RENEWALS:
            lost = details | {"milliseconds": round(1000 * seconds)}
            logger.warning("lease lost in the middle of a step: its work is done again by another worker", extra=lost)
        else:
            logger.info("another worker has taken over", extra=details)

    def wake(self) -> None:
        """Look now rather than at the next poll, because something arrived. Safe from any thread."""
        self._news.set()

    def stop(self) -> None:
        """Finish the step under way and return from `run`. Safe from any thread."""
        self._stopping.set()
        self._news.set()

    def _wait(self) -> None:
        """Wait until this process or another has written something, or something falls due."""
        # Never less than the shortest pause: what is due may be another worker's, or wait after a failure.
        while not self._news.wait(min(self._pause_seconds, max(self._poll_seconds, self._due_at - time.monotonic()))):
            try:
                if time.monotonic() >= self._due_at:
                    return
                if self._changes.since_last():
                    # Most of it was not announced because no step is due yet: one message of many.
                    self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
                    return
                self._pause_seconds = self._poll_seconds
            except SQLAlchemyError:
                # The next look says so. Not only of the driver: a pool without a free connection is none of its errors.
                return
        self._pause_seconds = self._poll_seconds

    def _pass(self) -> bool:
        """Look at everything once. An error in one study does not keep the others waiting."""
        try:
            tasks = self._tasks()
            self._coordinator.observer.looked()
            moved = [self._attempt(task) for task in tasks if not self._stopping.is_set()]
            if not any(moved):
                self._due_at = 0.0 if tasks else time.monotonic() + min(self._seconds_left(), _LONGEST_WAIT_SECONDS)
            return any(moved)
        # Every question of a look may meet a database that is away, and the thread must outlive all of them.
        except Exception as error:
            logger.warning("nothing can be found", exc_info=error)
            # Not `_news`, which may be set again and again while the database is away.
            self._stopping.wait(self._poll_seconds)
            return False

    def _seconds_left(self) -> float:
        return self._coordinator.database.read("find-next", lambda tx: seconds_left(tx, self.owner))

    def _attempt(self, task: WorkItem) -> bool:
        if time.monotonic() < self._paused_until.get(task.study_id, 0.0):
            return False
        try:
            return self.perform(task)
        except Exception as error:
            details = {"study": task.study, "round": task.round, "event": task.kind, "owner": self.owner}
            logger.error("step failed", exc_info=error, extra=details)
            self._coordinator.observer.failed(task.kind)
            # Or the same failure would fill the log at every look. The other studies go on.
            self._paused_until[task.study_id] = time.monotonic() + _PAUSE_AFTER_FAILURE_SECONDS
            return False

    def _tasks(self) -> list[WorkItem]:
        if time.monotonic() >= self._tidy_at:
            # Before it is done: a tidying that fails must not keep every look from its work.
            self._tidy_at = time.monotonic() + _TIDY_SECONDS
            tidy(self._coordinator)
        return self._coordinator.database.read("find-due", lambda tx: find_due(tx, self.owner))

    def _move(self, task: WorkItem, lease: Lease) -> None:
        match task.kind:
            case "open":
                begin_round(self._coordinator, lease, task.study)
            case "advance":
                advance_session(self._coordinator, lease, task.study, task.round)
            case "sum":
                open_sums(self._coordinator, lease, task.study, task.round, lambda: self._renew_lease(lease))
            case "close":
                close_round(self._coordinator, lease, task.study, task.round)
            case "release":
                release_round(self._coordinator, lease, task.study, task.round, lambda: self._renew_lease(lease))
            case "answer":
                answer_query(self._coordinator, lease, task.study, task.round, lambda: self._renew_lease(lease))
            case "scrub":
                scrub_round(self._coordinator, lease, task.study, task.round)

    def _hold(self, task: WorkItem) -> Lease | None:
        """Return the study's lease.

        Raises DatabaseDiffers where a new one finds that its rows are not what was signed.
        """
        study_id = task.study_id
        current = self._leases.get(study_id)
        # Not asked whether it still holds: the commit finds out, and no step before it counts.
        if current is not None:
            return current
        database, seconds = self._coordinator.database, self._lease_seconds
        lease = database.write("acquire-lease", lambda tx: acquire(tx, study_id, self.owner, seconds))
        if lease is not None:
            self._leases[study_id] = lease
            self._renewed[study_id] = time.monotonic()
            # Every entry is compared once for each lease. Before every commit only the newest is.
            database.read("compare-study", lambda tx: self._compare(tx, task.study))
        return lease

    def _compare(self, tx: Transaction, study: str) -> None:
        row = find_study(tx, study)
        # A finished study only has files to clear away, and its roster is not recorded any more.
        if row.state != "finished":
            require_unchanged(tx, self._coordinator.signer, row, whole=True)

    def _renew_lease(self, lease: Lease) -> None:
        """Renew the lease when a third of it is gone."""
        if time.monotonic() - self._renewed[lease.study_id] > lease.seconds / _RENEWALS:
            self._coordinator.database.write("renew-lease", lease.check)
            self._renewed[lease.study_id] = time.monotonic()

    def _let_go(self) -> None:
        for lease in self._leases.values():
            self._coordinator.database.write("release-lease", lambda tx, lease=lease: release(tx, lease))
        self._leases.clear()


def find_due(tx: Transaction, owner: str) -> list[WorkItem]:
    """Return every step that `owner` can take now, by the ids of their studies, without those that others hold."""
    # A reader finds the free ones. Only then is a lease asked for, which is a write.
    free = set(tx.session.scalars(select(LeaseRow.study_id).where(is_free_for(tx, owner))))
    return [task for task in (*_openings(tx), *_continuations(tx)) if task.study_id in free]


def seconds_left(tx: Transaction, owner: str) -> float:
    """Return seconds until a deadline passes, a pause is over or another worker's lease runs out, or infinity."""
    now = tx.now()
    times = (
        select(func.min(RoundRow.deadline)).where(RoundRow.state == "collecting", RoundRow.deadline > now),
        select(func.min(SessionRow.due_at)).where(SessionRow.due_at > now),
        select(func.min(QueryRow.due_at)).where(QueryRow.state == "waiting", QueryRow.due_at > now),
        select(func.min(QueryRow.reserved_until)).where(QueryRow.state == "waiting", QueryRow.reserved_until > now),
        select(func.min(StudyRow.next_round_at)).where(StudyRow.state == "running", StudyRow.next_round_at > now),
        select(func.min(LeaseRow.expires_at)).where(LeaseRow.owner.is_not(None), LeaseRow.owner != owner),
    )
    times_found = tx.session.execute(select(*(statement.scalar_subquery() for statement in times))).one()
    # A foreign value may be no time at all. The study's next step finds that out.
    return max(0.0, min((at for at in times_found if isinstance(at, int | float)), default=math.inf) - now)


def _openings(tx: Transaction) -> list[WorkItem]:
    active = (
        select(func.count())
        .where(ClientRow.study_id == StudyRow.id, ClientRow.state == "active")
        .correlate(StudyRow)
        .scalar_subquery()
    )
    under_way = exists().where(RoundRow.study_id == StudyRow.id, RoundRow.ended_at.is_(None))
    # A study whose budget is spent ends whether or not its clients are still there.
    can_open = or_(active >= StudyRow.quorum, BudgetRow.can_continue.is_(False))
    has_due_query = exists().where(
        QueryRow.study_id == StudyRow.id, QueryRow.state == "waiting", QueryRow.due_at <= tx.time
    )
    expires = exists().where(QueryRow.study_id == StudyRow.id, *overdue(tx))
    trains = and_(StudyRow.state == "running", StudyRow.next_round_at <= tx.time, can_open)
    # A study of questions alone has no steps: its pause holds questions back.
    answers_paused = and_(StudyRow.pause_reason.in_(ANSWERING), BudgetRow.max_steps > 0)
    asks = and_(or_(StudyRow.state == "running", answers_paused), has_due_query)
    statement = (
        select(StudyRow.id, StudyRow.name)
        .join_from(StudyRow, BudgetRow)
        .where(or_(and_(~under_way, or_(trains, asks)), and_(StudyRow.state != "finished", expires)))
    )
    return [WorkItem(id, name, "open", 0) for id, name in tx.session.execute(statement.order_by(StudyRow.id))]


def _continuations(tx: Transaction) -> list[WorkItem]:
    waiting = exists().where(
        and_(
            ParticipantRow.study_id == RoundRow.study_id,
            ParticipantRow.round == RoundRow.number,
            ParticipantRow.state == "sampled",
        )
    )
    statement = (
        select(RoundRow.study_id, StudyRow.name, RoundRow.number, RoundRow.state, RoundRow.deadline <= tx.time, waiting)
        .join_from(RoundRow, StudyRow)
        .outerjoin(SessionRow, and_(SessionRow.study_id == RoundRow.study_id, SessionRow.round == RoundRow.number))
        # On the database's clock, like every deadline: hosts may differ.
        .add_columns(SessionRow.phase, SessionRow.due_at <= tx.time, SessionRow.replies > SessionRow.tried)
        .add_columns(RoundRow.query.is_not(None))
        .where(RoundRow.scrubbed_at.is_(None))
        .order_by(RoundRow.study_id, RoundRow.number)
    )
    tasks: list[WorkItem] = []
    for id, name, number, state, late, is_awaited, phase, due, news, asks in tx.session.execute(statement):
        kind = _kind(state, phase, late=bool(late) or not is_awaited, due=bool(due), news=bool(news))
        if kind == "release" and asks:
            kind = "answer"
        if kind is not None:
            tasks.append(WorkItem(id, name, kind, number))
    return tasks


def _kind(state: RoundState, phase: Phase | None, *, late: bool, due: bool, news: bool) -> Kind | None:
    """Return the step that a round in `state` needs. `phase` is that of its secure sum, if it has one."""
    match state, phase:
        case "settled", _:
            return "release"
        case "released" | "abandoned" | "stopped", _:
            return "scrub"
        case _, None:
            return "close" if late else None
        case _, "summed" | "failed":
            return "close"
        case _, "unmask" if news:
            return "sum"
        case _:
            return "advance" if due else None
