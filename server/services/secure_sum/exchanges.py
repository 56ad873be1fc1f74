"""Messages of clients in a secure-sum session. Every admission may move the session on."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from server.db import rows
from server.db.blobs import Blob, IncomingFile, masked_of
from server.db.session import Transaction
from server.db.session_store import (
    has_ended,
    lock_session,
    masks_updates,
    parameters_of,
    record_message,
    said_by,
    store_phase,
)
from server.db.tables import ParticipantRow, SessionRow, Step, StudyRow
from server.db.witness_store import keep_header
from server.domain import secure_sum as rules
from server.domain.errors import Code, Rejected
from server.domain.secure_sum_session import Declined, Repeated, Session
from server.services.coordinator import Coordinator
from study_protocol.secure_sum.messages import ConsistencyMessage, KeysMessage, Manifest, SharesMessage, UnmaskMessage
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.wire.failpoints import failpoint, register

register(
    "api.before-session-message",
    "api.after-session-message",
    "api.before-octets-file",
    "api.after-octets-file",
    "api.after-octets-commit",
)
_PIECE_BYTES = 1 << 20
_STEPS: dict[type[rules.Message], tuple[Step, Callable[[Session, Any], Session | Repeated | Declined]]] = {
    KeysMessage: ("keys", rules.admit_keys),
    SharesMessage: ("shares", rules.admit_shares),
    Manifest: ("manifest", rules.admit_manifest),
    ConsistencyMessage: ("consistency", rules.admit_consistency),
    UnmaskMessage: ("unmask", rules.admit_unmask),
}
_CODES: dict[str, Code] = {
    "unknown-client": "not-sampled",
    "bad-signature": "bad-signature",
    "malformed": "invalid-request",
    "conflict": "different-message",
    "too-early": "too-early",
    "phase-closed": "round-closed",
    "session-failed": "session-failed",
}


@dataclass(frozen=True)
class Heard:
    """A recorded message. `created`: it is new. mark: the number of the study's newest event by then."""

    mark: int
    created: bool


@dataclass(frozen=True)
class VectorSlot:
    """Permission to send the octets of all vectors, exactly `limit` bytes. `repeated`: they are here already."""

    study: str
    round: int
    manifest: Manifest
    vectors: tuple[VectorSpec, ...]
    repeated: bool

    @property
    def limit(self) -> int:
        return sum(spec.octets for spec in self.vectors)


def begin_octets(coordinator: Coordinator, study: str, round_number: int, manifest: Manifest) -> VectorSlot:
    """Admit the masked vectors before their body is read.

    Raises:
        Rejected: as `put`.
    """

    # Asked again when they are here: what this process saw last says no more than that they may come.
    state = coordinator.sessions.cached(study, round_number)
    if state is not None and not state.ended:
        admission = rules.admit_manifest(state.session, manifest)
        if isinstance(admission, Session):
            return VectorSlot(study, round_number, manifest, state.session.parameters.vectors, repeated=False)

    def work(tx: Transaction) -> VectorSlot:
        row = find(tx, rows.find_study(tx, study).id, round_number)
        vectors = parameters_of(row).vectors
        if has_ended(row):
            _require_said(tx, row, "manifest", manifest)
            return VectorSlot(study, round_number, manifest, vectors, repeated=True)
        admission = rules.admit_manifest(coordinator.sessions.current(tx, study, row), manifest)
        if not isinstance(admission, Repeated):
            _require_admitted(admission)
        return VectorSlot(study, round_number, manifest, vectors, isinstance(admission, Repeated))

    return coordinator.database.read("begin-octets", work)


def keep_octets(coordinator: Coordinator, slot: VectorSlot, incoming: IncomingFile, sha256: str) -> Blob:
    """Keep the vectors in `incoming`, durably when this returns. They count once their manifest is recorded.

    Raises:
        Rejected: `digest-mismatch`, `different-message`, or `invalid-request` for another length.
    """
    if incoming.sha256 != sha256:
        raise Rejected("digest-mismatch", "sign the bytes that are sent, and send the bytes that were signed")
    if incoming.bytes != slot.limit:
        raise Rejected("invalid-request", f"the vectors of this session are {slot.limit} octets long together")
    if _digests(incoming.path, slot.vectors) != slot.manifest.digests:
        raise Rejected("different-message", "the octets are not those of this client's signed manifest")
    failpoint("api.before-octets-file")
    # The file before the row: an acknowledged update can be found after a crash.
    blob = coordinator.blobs.keep(incoming, masked_of(slot.study, slot.round, slot.manifest.client))
    failpoint("api.after-octets-file")
    return blob


def _digests(path: Path, vectors: tuple[VectorSpec, ...]) -> dict[str, bytes]:
    """Return SHA-256 of each vector, which lie in the file one after the other."""
    digests: dict[str, bytes] = {}
    with path.open("rb") as file:
        for spec in vectors:
            digest, rest = hashlib.sha256(), spec.octets
            while rest > 0 and (piece := file.read(min(_PIECE_BYTES, rest))):
                digest.update(piece)
                rest -= len(piece)
            digests[spec.name] = digest.digest()
    return digests


async def put(
    coordinator: Coordinator,
    study: str,
    round_number: int,
    message: rules.Message,
    witness: str | None = None,
    octets: Blob | None = None,
) -> Heard:
    """Record a client's message at its step, durably when this returns. No thread waits for it.

    witness  the header that vouches for the ledger, kept in the same transaction
    octets   with a manifest: its vectors, durable under their hash

    Raises:
        Rejected: `unknown-study`, `no-session`, `unknown-head`, and the code of the message's fault.
        SigningError: the witness's signature is not the client's.
    """
    step, admit = _STEPS[type(message)]

    def work(tx: Transaction) -> Heard:
        study_row, row = _locked(tx, study, round_number)
        if has_ended(row):
            _require_said(tx, row, step, message)
            return Heard(study_row.version, created=False)
        session = coordinator.sessions.current(tx, study, row)
        admission = admit(session, message)
        if isinstance(admission, Repeated):
            return Heard(study_row.version, created=False)
        moved = _require_admitted(admission)
        # Revoked while its body came in, for one: it counts as missing, so no part of it may be in the sum.
        if message.client in session.departed:
            raise Rejected("round-closed", "this client has left the session")
        keep_header(tx, study_row, message.client, witness)
        record_message(tx, row, message.client, step, message.model_dump_json(), octets and octets.sha256)
        advance(coordinator, tx, study_row, row, moved)
        return Heard(study_row.version, created=True)

    failpoint("api.before-session-message")
    heard = await asyncio.wrap_future(coordinator.database.write_with_others(study, f"session-{step}", work))
    failpoint("api.after-session-message")
    if octets is not None:
        failpoint("api.after-octets-commit")
    return heard


def leave(coordinator: Coordinator, study: str, round_number: int, client: str) -> None:
    """Leave the session: the client sends no more, and is not waited for. Repeatable."""

    def work(tx: Transaction) -> None:
        study_row, row = _locked(tx, study, round_number)
        if find_participant(tx, row, client) is None:
            raise Rejected("not-sampled", "this client takes no part in this session")
        leave_session(coordinator, tx, study_row, row, client)

    coordinator.database.write_with_others(study, "leave-session", work).result()


def leave_session(coordinator: Coordinator, tx: Transaction, study: StudyRow, row: SessionRow, client: str) -> None:
    """Leave the session inside a transaction that holds the study and the session."""
    if has_ended(row):
        return
    session = coordinator.sessions.current(tx, study.name, row)
    if client not in session.departed:
        record_message(tx, row, client, "left", None)
        advance(coordinator, tx, study, row, rules.leave(session, client))


def advance(coordinator: Coordinator, tx: Transaction, study: StudyRow, row: SessionRow, session: Session) -> None:
    """Freeze what is due now, and tell those who wait. `session` has been changed, or time has passed."""
    # Rounded down: no set freezes before its second.
    advanced = rules.advance(session, int(tx.now()))
    if advanced.phase != row.phase:
        store_phase(tx, row, advanced)
        if advanced.survivors and not session.survivors:
            _mark_survivors(tx, row, advanced)
        # The next move is the clients', until the time is up, which a worker looks for by itself.
        rows.append_event(tx, study, f"secure-sum-{advanced.phase}", row.round, work=has_ended(row))
    if advanced.phase == "unmask" and rules.is_openable(advanced):
        # The next move is a worker's. It is called once, unless it has tried and waits for more.
        if row.replies == 0 or row.tried > 0:
            tx.announce(study.name)
        row.replies = len(advanced.unmasks)
    coordinator.sessions.change(tx, study.name, row, advanced, study.version)


def _mark_survivors(tx: Transaction, row: SessionRow, session: Session) -> None:
    """Record the update of each client whose vectors are all in the sum, unless updates travel in the clear."""
    if not masks_updates(row):
        return
    sampled = select(ParticipantRow).where(
        ParticipantRow.study_id == row.study_id, ParticipantRow.round == row.round, ParticipantRow.state == "sampled"
    )
    size = sum(spec.octets for spec in session.parameters.vectors)
    for participant in tx.session.scalars(sampled):
        if participant.client in session.survivor_set:
            participant.state, participant.answered_at, participant.sending_since = "received", tx.now(), tx.now()
            # The table wants one hash of every received client. The manifest is beside it for the others.
            digests = session.manifests[participant.client].digests
            participant.sha256, participant.bytes = next(iter(digests.values())).hex(), size


def find_participant(tx: Transaction, row: SessionRow, client: str) -> ParticipantRow | None:
    return tx.session.get(ParticipantRow, (row.study_id, row.round, client))


def find(tx: Transaction, study_id: int, round_number: int) -> SessionRow:
    """Raises Rejected `no-session`."""
    row = rows.find_session(tx, study_id, round_number)
    if row is None:
        raise Rejected("no-session", "this round has no secure sum, or does not exist")
    return row


def _locked(tx: Transaction, study: str, round_number: int) -> tuple[StudyRow, SessionRow]:
    """Return both rows, locked by the first piece of this transaction that needed them."""
    key = ("locked", study, round_number)
    if key not in tx.shared:
        study_row = rows.lock_study(tx, study)
        # So that the round is not ended while its session moves.
        rows.share_round(tx, study_row.id, round_number)
        row = lock_session(tx, study_row.id, round_number)
        if row is None:
            raise Rejected("no-session", "this round has no secure sum, or does not exist")
        tx.shared[key] = study_row, row
    return tx.shared[key]


def _require_said(tx: Transaction, row: SessionRow, step: Step, message: rules.Message) -> None:
    """Check that this very message was said while it could be. Other messages of an ended session are not looked at.

    Raises:
        Rejected: `different-message`, `session-failed`, `round-closed`.
    """
    stored = said_by(tx, row, message.client, step)
    if stored is not None:
        # An erased message was admitted, and another one could not change its effect.
        if stored.body is None or type(message).model_validate_json(stored.body) == message:
            return
        raise Rejected("different-message", "another message of this client is stored")
    if row.phase == "failed":
        raise Rejected("session-failed", f"the session ended: {row.failure}", failure=row.failure)
    raise Rejected("round-closed", f"the session is in its phase {row.phase}")


def _require_admitted(admission: Session | Repeated | Declined) -> Session:
    if isinstance(admission, Session):
        return admission
    if isinstance(admission, Declined):
        raise rejected(admission)
    raise TypeError("a repeated message is answered before this")


def rejected(declined: Declined) -> Rejected:
    return Rejected(_CODES.get(declined.code, "invalid-request"), declined.detail)
