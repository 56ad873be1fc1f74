"""The worker's part of a secure sum: move a session on when time is up, and open the sums once t have replied.

Rebuilt secrets exist in this process's memory only. The sums are written as files of the round and scrubbed with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from server.db import rows
from server.db.blobs import OpenedFile, masked_of, sum_of
from server.db.leases import Lease, commit_under_lease
from server.db.session import Transaction
from server.db.session_store import load_session, lock_session, octets_of, store_phase
from server.db.tables import SessionRow, StudyRow
from server.domain import secure_sum_recovery as recovery
from server.domain.secure_sum_session import Declined, Session
from server.services.coordinator import Coordinator
from server.services.secure_sum.exchanges import advance
from server.services.secure_sum.sums import write_sum
from study_protocol.wire.failpoints import failpoint, register

register("worker.before-sum-files", "worker.after-sum-files")


@dataclass(frozen=True)
class _Ready:
    """A session with its replies, and the survivors' files with octets: (client, SHA-256)."""

    session: Session
    octets: list[tuple[str, str]]


class OctetsLost(Exception):
    """A masked vector that was acknowledged is gone: the sums can never be made."""


def advance_session(coordinator: Coordinator, lease: Lease, study: str, number: int) -> None:
    """Freeze the due sets without the missing clients, or let the session fail, in one transaction."""

    def work(tx: Transaction) -> None:
        row = rows.lock_study(tx, study)
        session = lock_session(tx, row.id, number)
        if session is not None:
            advance(coordinator, tx, row, session, coordinator.sessions.current(tx, study, session))

    commit_under_lease(coordinator.database, lease, "advance", work)


def open_sums(coordinator: Coordinator, lease: Lease, study: str, number: int, renew_lease: Callable[[], None]) -> None:
    """Rebuild the masks from the replies and write the sums. With wrong shares, wait for more replies."""
    ready = coordinator.database.read("read-replies", lambda tx: _read(tx, study, number))
    if ready is None:
        return
    recovered = recovery.recover(ready.session)
    try:
        outcome = (
            recovered
            if isinstance(recovered, Declined)
            else _sum(coordinator, study, number, ready, recovered, renew_lease)
        )
    except OctetsLost:
        # For the round it is the same: its sums can never be made, even with more replies.
        outcome = Declined("canary-mismatch", "a masked vector is gone")
    commit_under_lease(
        coordinator.database, lease, "sum", lambda tx: _record(coordinator, tx, study, number, ready, outcome)
    )


def _read(tx: Transaction, study: str, number: int) -> _Ready | None:
    row = rows.find_session(tx, rows.find_study(tx, study).id, number)
    if row is None or row.phase != "unmask":
        return None
    # From the rows, not from what this process has seen: what is summed is what is stored.
    session = load_session(tx, row)
    return _Ready(session, octets_of(tx, row, session.survivors))


def _sum(
    coordinator: Coordinator,
    study: str,
    number: int,
    ready: _Ready,
    recovered: recovery.Recovered,
    renew_lease: Callable[[], None],
) -> dict[str, bytes] | Declined:
    """Return digests of the sums, which lie on disk then."""
    # No file is cleared here: a worker that has lost its lease would delete the files that its successor has committed.
    failpoint("worker.before-sum-files")
    digests: dict[str, bytes] = {}
    start = 0
    with ExitStack() as opened:
        # One file of each client, with its vectors one after the other.
        files = [opened.enter_context(_octets(coordinator, study, number, *octets)) for octets in ready.octets]
        for spec in ready.session.parameters.vectors:
            keys = recovery.mask_keys_of(ready.session, recovered, spec)
            with coordinator.blobs.receive(spec.octets) as incoming:
                vectors = [(file, start) for file in files]
                wrong = write_sum(incoming, ready.session, spec, vectors, keys, renew_lease)
                if wrong is not None:
                    return wrong
                blob = coordinator.blobs.keep(incoming, sum_of(study, number, spec.name))
            digests[spec.name] = bytes.fromhex(blob.sha256)
            start += spec.octets
    failpoint("worker.after-sum-files")
    return digests


def _octets(coordinator: Coordinator, study: str, number: int, client: str, sha256: str) -> OpenedFile:
    file = coordinator.blobs.open(masked_of(study, number, client), sha256)
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
    # The lead may have stopped the study while the sums were made. Then they are not announced.
    if row is None or row.phase != "unmask":
        return
    # As many as were read, not as are there: replies since then ask for another try.
    row.tried = len(ready.session.unmasks)
    match outcome:
        # The session waits: more replies may contain t that agree.
        case Declined(code, _) if code in ("too-few-replies", "wrong-shares"):
            return
        case Declined():
            _end(coordinator, tx, study_row, row, recovery.discarded(ready.session))
        case digests:
            finished, result = recovery.summed(ready.session, digests, coordinator.signer.sign_statement)
            row.result = result.model_dump(mode="json")
            _end(coordinator, tx, study_row, row, finished)


def _end(coordinator: Coordinator, tx: Transaction, study: StudyRow, row: SessionRow, session: Session) -> None:
    store_phase(tx, row, session)
    rows.append_event(tx, study, f"secure-sum-{row.phase}", row.round)
    coordinator.sessions.change(tx, study.name, row, session, study.version)
