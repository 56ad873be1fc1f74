"""The worker's part of a secure sum: move a session on when time is up, and open the sums once t have replied.

Rebuilt secrets exist in this process's memory only. The sums are written as files of the round and scrubbed with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.wire.failpoints import failpoint, register
from server.db import rows
from server.db.blobs import OpenedFile, masked_of, sum_of
from server.db.session import Lease, Transaction, commit_under_lease
from server.db.session_store import load_session, lock_session, octets_of, store_phase
from server.domain import secure_sum_recovery as recovery
from server.domain.secure_sum import Declined, Session
from server.services.coordinator import Coordinator
from server.services.secure_sum.exchanges import advance
from server.services.secure_sum.sums import write_sum

register("worker.before-sum-files", "worker.after-sum-files")


@dataclass(frozen=True)
class _Ready:
    """A session with its replies, and where the octets lie: vector → (client, SHA-256)."""

    session: Session
    octets: dict[str, list[tuple[str, str]]]


class OctetsLost(Exception):
    """A masked vector that was acknowledged is gone: the sums can never be made."""


def advance_session(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """One transaction: freeze what is due without those who are missing, or let the session fail."""

    def work(tx: Transaction) -> None:
        row = rows.lock_study(tx, study)
        session = lock_session(tx, row.id, number)
        if session is not None:
            advance(tx, row, session, load_session(tx, session))

    commit_under_lease(coordinator.database, lease, "advance", work)


def open_sums(coordinator: Coordinator, lease: Lease, study: str, number: int, renew_lease: Callable[[], None]) -> None:
    """Rebuild the masks from the replies and write the sums; with wrong shares, wait for more replies."""
    ready = coordinator.database.read("read-replies", lambda tx: _read(tx, study, number))
    if ready is None:
        return
    found = recovery.recover(ready.session)
    try:
        outcome = found if isinstance(found, Declined) else _sum(coordinator, study, number, ready, found, renew_lease)
    except OctetsLost:
        # For the round it is the same: its sums can never be made, whoever replies.
        outcome = Declined("canary-mismatch", "a masked vector is gone")
    commit_under_lease(
        coordinator.database, lease, "sum", lambda tx: _record(coordinator, tx, study, number, ready, outcome)
    )


def _read(tx: Transaction, study: str, number: int) -> _Ready | None:
    row = rows.find_session(tx, rows.find_study(tx, study).id, number)
    if row is None or row.phase != "unmask":
        return None
    # Shares hold the commitments, openings the shares themselves: both are needed here.
    session = load_session(tx, row, step="unmask")
    shares = load_session(tx, row, step="shares").shares
    octets = {spec.name: octets_of(tx, row, spec.name, session.survivors) for spec in session.parameters.vectors}
    return _Ready(replace(session, shares=shares), octets)


def _sum(
    coordinator: Coordinator,
    study: str,
    number: int,
    ready: _Ready,
    recovered: recovery.Recovered,
    renew_lease: Callable[[], None],
) -> dict[str, bytes] | Declined:
    """Digests of the sums, which lie on disk then."""
    # Nothing is cleared here: a worker that has lost its lease would delete what its successor has committed.
    failpoint("worker.before-sum-files")
    digests: dict[str, bytes] = {}
    for spec in ready.session.parameters.vectors:
        keys = recovery.mask_keys_of(ready.session, recovered, spec)
        with ExitStack() as opened, coordinator.blobs.receive(spec.octets) as incoming:
            vectors = [
                (opened.enter_context(_octets(coordinator, study, number, client, spec, sha256)), 0)
                for client, sha256 in ready.octets[spec.name]
            ]
            wrong = write_sum(incoming, ready.session, spec, vectors, keys, renew_lease)
            if wrong is not None:
                return wrong
            blob = coordinator.blobs.keep(incoming, sum_of(study, number, spec.name))
        digests[spec.name] = bytes.fromhex(blob.sha256)
    failpoint("worker.after-sum-files")
    return digests


def _octets(
    coordinator: Coordinator, study: str, number: int, client: str, spec: VectorSpec, sha256: str
) -> OpenedFile:
    file = coordinator.blobs.open(masked_of(study, number, client, spec.name), sha256)
    if file is None:
        raise OctetsLost
    return file


def _record(
    coordinator: Coordinator,
    tx: Transaction,
    study: str,
    number: int,
    ready: _Ready,
    outcome: dict[str, bytes] | Declined,
) -> None:
    study_row = rows.lock_study(tx, study)
    row = lock_session(tx, study_row.id, number)
    # An operator may have stopped the study while the sums were made; then they are not announced.
    if row is None or row.phase != "unmask":
        return
    # As many as were read, not as are there: replies since then ask for another try.
    row.tried = len(ready.session.unmasks)
    match outcome:
        # The session waits: more replies may contain t that agree.
        case Declined(code, _) if code in ("too-few-replies", "wrong-shares"):
            return
        case Declined():
            store_phase(row, recovery.discarded(ready.session))
        case digests:
            finished, result = recovery.summed(ready.session, digests, coordinator.signer.sign_statement)
            row.result = result.model_dump(mode="json")
            store_phase(row, finished)
    rows.append_event(tx, study_row, f"secure-sum-{row.phase}", number)
