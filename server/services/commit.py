"""How a worker commits: only while it holds the study's lease, with a place to die on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from client_sdk.protocol.wire.failpoints import failpoint, register
from server.db.lease import Lease
from server.db.session import Transaction
from server.services.coordinator import Coordinator

T = TypeVar("T")
Point = Literal["reserve", "advance", "sum", "settle", "noise", "release", "abandon", "scrub"]

register(*(f"worker.{side}-{point}" for side in ("before", "after") for point in Point.__args__))


def commit_under_lease(coordinator: Coordinator, lease: Lease, point: Point, work: Callable[[Transaction], T]) -> T:
    """Run `work` in the transaction `worker-<point>`; commit durably if the lease is still ours.

    Raises:
        LeaseLost: another worker has taken over; nothing was changed.
    """

    def guarded(tx: Transaction) -> T:
        lease.check(tx)
        result = work(tx)
        tx.session.flush()
        failpoint(f"worker.before-{point}")
        return result

    result = coordinator.database.write(f"worker-{point}", guarded)
    failpoint(f"worker.after-{point}")
    return result
