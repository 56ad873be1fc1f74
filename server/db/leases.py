"""Leases of studies: one worker moves a study's rounds on, and every commit of it checks the lease's fencing number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from sqlalchemy import ColumnElement, CursorResult, or_, update

from server.db.session import Database, Transaction
from server.db.tables import LeaseRow
from study_protocol.wire.failpoints import failpoint, register

T = TypeVar("T")
Point = Literal["reserve", "advance", "sum", "settle", "noise", "release", "answer", "abandon", "scrub"]
register(*(f"worker.{side}-{point}" for side in ("before", "after") for point in Point.__args__))


class LeaseLost(Exception):
    """Another worker has taken over, and this transaction is not committed."""


@dataclass(frozen=True)
class Lease:
    """Held by `owner` under fencing number `fence` for `seconds` after each commit."""

    study_id: int
    owner: str
    fence: int
    seconds: float

    def check(self, tx: Transaction) -> None:
        """Renew the lease inside `tx`, which can then commit only while no other worker has taken over.

        Raises:
            LeaseLost: the fencing number is not the newest.
        """
        mine = update(LeaseRow).where(LeaseRow.study_id == self.study_id, LeaseRow.fence == self.fence)
        if not _changed(tx, mine.values(expires_at=tx.time + self.seconds, written_by=tx.name)):
            raise LeaseLost(f"the lease of study {self.study_id} went to another worker")


def commit_under_lease(database: Database, lease: Lease, point: Point, work: Callable[[Transaction], T]) -> T:
    """Run `work` in the transaction `worker-<point>`, and commit durably if the lease is still ours.

    There is a failpoint on either side of the commit.

    Raises:
        LeaseLost: another worker has taken over. No row was changed.
    """

    def guarded(tx: Transaction) -> T:
        # First: the lease's row stays locked until the commit, so that no worker takes over between check and commit.
        lease.check(tx)
        result = work(tx)
        # A process that is killed at this failpoint has sent every statement, and only the COMMIT is missing.
        tx.session.flush()
        failpoint(f"worker.before-{point}")
        return result

    result = database.write(f"worker-{point}", guarded)
    failpoint(f"worker.after-{point}")
    return result


def is_free_for(tx: Transaction, owner: str) -> ColumnElement[bool]:
    """Return whether `owner` may take the lease: it is free, its own already, or has run out."""
    return or_(LeaseRow.owner.is_(None), LeaseRow.owner == owner, LeaseRow.expires_at <= tx.time)


def acquire(tx: Transaction, study_id: int, owner: str, seconds: float) -> Lease | None:
    """Return the study's lease if it is free, run out or the owner's already, else None. One conditional UPDATE."""
    take = (
        update(LeaseRow)
        .where(LeaseRow.study_id == study_id, is_free_for(tx, owner))
        # Counted up for the same owner, too: what it holds of an earlier lease is void.
        .values(owner=owner, fence=LeaseRow.fence + 1, expires_at=tx.time + seconds, written_by=tx.name)
    )
    if not _changed(tx, take):
        return None
    return Lease(study_id, owner, tx.session.get_one(LeaseRow, study_id).fence, seconds)


def release(tx: Transaction, lease: Lease) -> None:
    """Let another worker have it at once."""
    # By fence, not by owner: a worker that was overtaken frees no lease.
    mine = update(LeaseRow).where(LeaseRow.study_id == lease.study_id, LeaseRow.fence == lease.fence)
    tx.session.execute(mine.values(owner=None, written_by=tx.name))


def _changed(tx: Transaction, statement: Any) -> bool:
    result = tx.session.execute(statement.execution_options(synchronize_session=False))
    return cast("CursorResult[Any]", result).rowcount == 1
