"""What a client says in a secure-sum session, and what it is shown. Every admission may move the session on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from client_sdk.protocol.secure_sum.messages import (
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SessionView,
    SharesMessage,
    SignedParameters,
    SumResult,
    SurvivorList,
    UnmaskMessage,
)
from client_sdk.protocol.study.values import Message
from client_sdk.protocol.wire.failpoints import failpoint, register
from server.db import rows
from server.db.blobs import Blob, IncomingFile, masked_of
from server.db.session import Transaction
from server.db.session_store import (
    MessageForgotten,
    has_ended,
    load_session,
    lock_session,
    masks_updates,
    record_message,
    store_phase,
)
from server.db.tables import OctetsRow, ParticipantRow, SessionRow, Step, StudyRow
from server.db.witness_store import keep_header
from server.domain import secure_sum as rules
from server.domain.errors import Code, Rejected
from server.domain.secure_sum import Declined, Repeated, Session
from server.services.coordinator import Coordinator

register(
    "api.before-session-message",
    "api.after-session-message",
    "api.before-octets-file",
    "api.after-octets-file",
    "api.after-octets-commit",
)

Shown = TypeVar("Shown", bound=Message)

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
class OctetsSlot:
    """Permission to send the octets of one vector: exactly `limit` bytes, which are here already when `repeated`."""

    study: str
    round: int
    client: str
    vector: str
    limit: int
    repeated: bool


def read_session(coordinator: Coordinator, study: str, round: int) -> SessionView:
    """The signed parameters and the phase.

    Raises:
        Rejected: `unknown-study`, `no-session`.
    """

    def work(tx: Transaction) -> SessionView:
        row = _session(tx, study, round)
        signed = SignedParameters(parameters=row.parameters, signature=row.signature)
        return SessionView.model_validate({"signed": signed, "phase": row.phase, "failure": row.failure})

    return coordinator.database.read("read-session", work)


def put(coordinator: Coordinator, study: str, round: int, message: rules.Message, witness: str | None = None) -> bool:
    """What a client says at the step of this message; False when it was said before.

    witness  the header that vouches for the ledger, kept in the same transaction

    Raises:
        Rejected: `unknown-study`, `no-session`, `unknown-head`, and the code of what is wrong with the message.
        SigningError: the witness's signature is not the client's.
    """
    step, admit = _STEPS[type(message)]

    def work(tx: Transaction) -> bool:
        study_row, row = _locked(tx, study, round)
        # Of shares and openings this client's only: each holds a slot for every other client.
        try:
            found = admit(load_session(tx, row, client=message.client), message)
        except MessageForgotten:
            # It was admitted, and with its round over there is nothing that another one could change.
            return False
        if isinstance(found, Repeated):
            return False
        moved = _require_admitted(found)
        keep_header(tx, study_row, message.client, witness)
        record_message(tx, row, message.client, step, message.model_dump_json())
        advance(tx, study_row, row, moved)
        return True

    failpoint("api.before-session-message")
    created = coordinator.database.write(f"session-{step}", work)
    failpoint("api.after-session-message")
    return created


def leave(coordinator: Coordinator, study: str, round: int, client: str) -> None:
    """The client sends nothing more: nobody waits for it. Repeatable."""

    def work(tx: Transaction) -> None:
        study_row, row = _locked(tx, study, round)
        if find_participant(tx, row, client) is None:
            raise Rejected("not-sampled", "this client takes no part in this session")
        leave_session(tx, study_row, row, client)

    coordinator.database.write("leave-session", work)


def leave_session(tx: Transaction, study: StudyRow, row: SessionRow, client: str) -> None:
    """Inside a transaction that holds the study and the session."""
    session = load_session(tx, row)
    if client in session.left or has_ended(row):
        return
    record_message(tx, row, client, "left", None)
    advance(tx, study, row, rules.leave(session, client))


def key_list(coordinator: Coordinator, study: str, round: int) -> KeyList:
    """U1. Raises Rejected `too-early`, as every list does before its set is frozen."""
    return _show(coordinator, study, round, rules.key_list)


def inbox(coordinator: Coordinator, study: str, round: int, client: str) -> Inbox:
    """The shares for one client."""
    return _show(coordinator, study, round, lambda session: rules.inbox(session, client), step="shares")


def survivor_list(coordinator: Coordinator, study: str, round: int) -> SurvivorList:
    """U3."""
    return _show(coordinator, study, round, rules.survivor_list)


def consistency_list(coordinator: Coordinator, study: str, round: int) -> ConsistencyList:
    """The signatures over U3."""
    return _show(coordinator, study, round, rules.consistency_list)


def result(coordinator: Coordinator, study: str, round: int) -> SumResult:
    """The digests of the sums. Raises Rejected `too-early`, `session-failed`."""

    def work(tx: Transaction) -> SumResult:
        row = _session(tx, study, round)
        if row.phase == "failed":
            raise Rejected("session-failed", f"the session ended: {row.failure}")
        if row.result is None:
            raise Rejected("too-early", "the sums are not opened yet")
        return SumResult.model_validate(row.result)

    return coordinator.database.read("read-sum-result", work)


def begin_octets(coordinator: Coordinator, study: str, round: int, client: str, vector: str, sha256: str) -> OctetsSlot:
    """Before the body of a masked vector is read.

    Raises:
        Rejected: no such vector, no manifest yet, other octets than the manifest's, or the phase is over.
    """

    def work(tx: Transaction) -> OctetsSlot:
        session = load_session(tx, _session(tx, study, round), client=client)
        spec = session.parameters.vector(vector)
        if spec is None:
            raise Rejected("invalid-request", "the session has no vector of this name")
        # No size is known before the body: the slot's limit holds it, and the size is checked when it is recorded.
        found = rules.admit_octets(session, client, vector, bytes.fromhex(sha256), spec.octets)
        if not isinstance(found, Repeated):
            _require_admitted(found)
        return OctetsSlot(study, round, client, vector, spec.octets, isinstance(found, Repeated))

    return coordinator.database.read("begin-octets", work)


def keep_octets(coordinator: Coordinator, slot: OctetsSlot, incoming: IncomingFile, sha256: str) -> bool:
    """The whole vector is in `incoming`; durable when this returns. True when new."""
    if incoming.sha256 != sha256:
        raise Rejected("digest-mismatch", "sign the bytes that are sent, and send the bytes that were signed")
    failpoint("api.before-octets-file")
    # The file before the row: whatever is acknowledged can be found after a crash.
    blob = coordinator.blobs.keep(incoming, masked_of(slot.study, slot.round, slot.client, slot.vector))
    failpoint("api.after-octets-file")
    created = coordinator.database.write("keep-octets", lambda tx: _record_octets(tx, slot, blob))
    failpoint("api.after-octets-commit")
    return created


def _record_octets(tx: Transaction, slot: OctetsSlot, blob: Blob) -> bool:
    study, row = _locked(tx, slot.study, slot.round)
    session = load_session(tx, row, client=slot.client)
    found = rules.admit_octets(session, slot.client, slot.vector, bytes.fromhex(blob.sha256), blob.bytes)
    if isinstance(found, Repeated):
        return False
    moved = _require_admitted(found)
    key = {"study_id": row.study_id, "round": row.round, "client": slot.client, "vector": slot.vector}
    tx.session.add(OctetsRow(**key, sha256=blob.sha256))
    tx.session.flush()
    advance(tx, study, row, moved)
    return True


def advance(tx: Transaction, study: StudyRow, row: SessionRow, session: Session) -> None:
    """Freeze what is due now, and tell those who wait."""
    # Rounded down: nothing freezes before its second.
    advanced = rules.advance(session, int(tx.now()))
    if advanced.phase == row.phase:
        return
    store_phase(row, advanced)
    if advanced.survivors:
        _mark_survivors(tx, row, advanced)
    rows.append_event(tx, study, f"secure-sum-{advanced.phase}", row.round)


def _mark_survivors(tx: Transaction, row: SessionRow, session: Session) -> None:
    """A client whose vectors are all in the sum has sent its update, unless updates travel in the clear."""
    if not masks_updates(row):
        return
    for name in session.survivors:
        participant = find_participant(tx, row, name)
        if participant is not None and participant.state == "sampled":
            digests = session.manifests[name].digests
            participant.state, participant.answered_at, participant.sending_since = "received", tx.now(), tx.now()
            # The table wants one hash of whoever is received; the manifest is beside it for the others.
            participant.sha256 = next(iter(digests.values())).hex()
            participant.bytes = sum(spec.octets for spec in session.parameters.vectors)


def find_participant(tx: Transaction, row: SessionRow, client: str) -> ParticipantRow | None:
    return tx.session.get(ParticipantRow, (row.study_id, row.round, client))


def _show(
    coordinator: Coordinator,
    study: str,
    round: int,
    view: Callable[[Session], Shown | Declined],
    *,
    step: str | None = None,
) -> Shown:
    def work(tx: Transaction) -> Shown:
        row = _session(tx, study, round)
        try:
            shown = view(load_session(tx, row, step=step))
        except MessageForgotten:
            raise Rejected("round-closed", "the round is over, and what was sent for it is erased") from None
        if not isinstance(shown, Declined):
            return shown
        # After the view: what froze before the failure can still be read.
        if row.phase == "failed":
            raise Rejected("session-failed", f"the session ended: {row.failure}")
        raise _rejected(shown)

    return coordinator.database.read("show-session", work)


def _session(tx: Transaction, study: str, round: int) -> SessionRow:
    row = rows.find_session(tx, rows.find_study(tx, study).id, round)
    if row is None:
        raise Rejected("no-session", "this round sums nothing under masks, or does not exist")
    return row


def _locked(tx: Transaction, study: str, round: int) -> tuple[StudyRow, SessionRow]:
    study_row = rows.lock_study(tx, study)
    # So that the round is not ended while its session moves.
    rows.share_round(tx, study_row.id, round)
    row = lock_session(tx, study_row.id, round)
    if row is None:
        raise Rejected("no-session", "this round sums nothing under masks, or does not exist")
    return study_row, row


def _require_admitted(found: Session | Repeated | Declined) -> Session:
    if isinstance(found, Session):
        return found
    if isinstance(found, Declined):
        raise _rejected(found)
    raise TypeError("a repeated message is answered before this")


def _rejected(declined: Declined) -> Rejected:
    return Rejected(_CODES.get(declined.code, "invalid-request"), declined.detail)
