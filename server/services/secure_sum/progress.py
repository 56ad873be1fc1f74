"""The worker's part of a secure sum: move a session on when time is up, and open the sums once t have replied.

Rebuilt secrets exist in this process's memory only. The sums are written as files of the round and scrubbed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from client_sdk.protocol.secure_sum.fixed_point import RingVector
from client_sdk.protocol.secure_sum.layout import UPDATE
from client_sdk.protocol.secure_sum.messages import SessionParameters, SumResult
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.wire.failpoints import failpoint, register
from server.db.lease import Lease
from server.db.repositories import append_event, find_study, lock_study
from server.db.secure_sum_tables import SessionRow
from server.db.session import Transaction
from server.db.session_store import find_session, load_session, lock_session, octets_of, store_phase
from server.domain import secure_sum_recovery as recovery
from server.domain.secure_sum import Declined, Session
from server.services.commit import commit_under_lease
from server.services.coordinator import Coordinator
from server.services.rounds.submit import round_scope
from server.services.secure_sum.exchanges import advance, octets_scope

register("worker.before-sum-files", "worker.after-sum-files")


@dataclass(frozen=True)
class _Ready:
    """A session with its replies, and where the octets lie: vector → (client, SHA-256)."""

    session: Session
    octets: dict[str, list[tuple[str, str]]]


class OctetsLost(Exception):
    """A masked vector that was acknowledged is gone: the sums can never be made."""


def sums_scope(study: str, round: int) -> str:
    """Where the opened sums lie until the round is scrubbed."""
    return f"{round_scope(study, round)}/sums"


def advance_session(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """One transaction: freeze what is due without those who are missing, or let the session fail."""

    def work(tx: Transaction) -> None:
        row = lock_study(tx, study)
        session = lock_session(tx, row.id, number)
        if session is not None:
            advance(tx, row, session, load_session(tx, session))

    commit_under_lease(coordinator, lease, "advance", work)


def open_sums(coordinator: Coordinator, lease: Lease, study: str, number: int, renew_lease: Callable[[], None]) -> None:
    """Rebuild the masks from the replies and write the sums; with wrong shares, wait for more replies."""
    ready = coordinator.database.read("read-replies", lambda tx: _read(tx, study, number))
    if ready is None:
        return
    found = recovery.recover(ready.session)
    try:
        outcome = found if isinstance(found, Declined) else _sum(coordinator, study, number, ready, found, renew_lease)
    except OctetsLost:
        outcome = Declined("canary-mismatch", "a masked vector is gone")
    commit_under_lease(coordinator, lease, "sum", lambda tx: _record(coordinator, tx, study, number, ready, outcome))


def _read(tx: Transaction, study: str, number: int) -> _Ready | None:
    row = find_session(tx, find_study(tx, study).id, number)
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
        paths = [_octets(coordinator, study, number, client, spec, sha) for client, sha in ready.octets[spec.name]]
        total = recovery.masked_total(spec, _mapped(spec, paths, renew_lease))
        wrong = recovery.unmask_total(ready.session, recovered, spec, total)
        if wrong is not None:
            return wrong
        blob = coordinator.blobs.write(f"{sums_scope(study, number)}/{spec.name}", total.tobytes())
        digests[spec.name] = bytes.fromhex(blob.sha256)
    failpoint("worker.after-sum-files")
    return digests


def _octets(coordinator: Coordinator, study: str, number: int, client: str, spec: VectorSpec, sha256: str) -> Path:
    path = coordinator.blobs.find(octets_scope(study, number, client, spec.name), sha256)
    if path is None:
        raise OctetsLost
    return path


def _mapped(spec: VectorSpec, paths: Sequence[Path], renew_lease: Callable[[], None]) -> Iterator[RingVector]:
    for path in paths:
        renew_lease()
        yield np.memmap(path, dtype=spec.dtype, mode="r", shape=(spec.words,))


def _record(
    coordinator: Coordinator,
    tx: Transaction,
    study: str,
    number: int,
    ready: _Ready,
    outcome: dict[str, bytes] | Declined,
) -> None:
    study_row = lock_study(tx, study)
    row = lock_session(tx, study_row.id, number)
    if row is None or row.phase != "unmask":
        return
    row.tried = len(ready.session.unmasks)
    match outcome:
        case Declined(code, _) if code in ("too-few-replies", "wrong-shares"):
            return
        case Declined():
            store_phase(row, recovery.discarded(ready.session))
        case digests:
            finished, result = recovery.summed(ready.session, digests, coordinator.signer.sign_statement)
            row.result = result.model_dump(mode="json")
            store_phase(row, finished)
    append_event(tx, study_row, f"secure-sum-{row.phase}", number)


def opened_update(tx: Transaction, study_id: int, number: int) -> tuple[VectorSpec, str] | None:
    """The vector of updates and the SHA-256 of its opened sum; None where updates came in the clear."""
    row = find_session(tx, study_id, number)
    if row is None or row.result is None:
        return None
    spec = SessionParameters.from_bytes(row.parameters).vector(UPDATE)
    return None if spec is None else (spec, SumResult.model_validate(row.result).digests[UPDATE].hex())


def sum_words(coordinator: Coordinator, study: str, row: SessionRow, spec: VectorSpec) -> RingVector | None:
    """An opened sum, or None when its file is gone."""
    if row.result is None:
        return None
    sha256 = SumResult.model_validate(row.result).digests[spec.name].hex()
    path = coordinator.blobs.find(f"{sums_scope(study, row.round)}/{spec.name}", sha256)
    return None if path is None else np.fromfile(path, dtype=spec.dtype)
