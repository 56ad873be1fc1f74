"""Who takes part: identity keys, rotations, revocations, withdrawals."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from client_sdk.protocol.study.messages import ClientState, KeyRotation, Roster, RosterEntry
from client_sdk.protocol.wire.signing import (
    ENROLMENT,
    TOKEN_LIFETIME_SECONDS,
    decode_public_key,
    roster_fingerprint,
    verify_document,
)
from server.db.repositories import (
    append_event,
    clients,
    find_client,
    find_session,
    find_study,
    lock_open_round,
    lock_study,
)
from server.db.session import Transaction
from server.db.session_store import lock_session, members_at_opening
from server.db.tables import ClientRow, InvitationRow, ParticipantRow, StudyRow, UsedTokenRow
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.secure_sum.exchanges import leave_session
from server.services.views import roster_entry


@dataclass(frozen=True)
class MemberKey:
    """One client of one study as the coordinator knows it."""

    study: str
    client: str
    public_key: str
    state: ClientState


def identify(coordinator: Coordinator, study: str, client: str) -> MemberKey:
    """Whose key signs for `client`; withdrawn clients are still known.

    Raises:
        Rejected: `unknown-study`, `not-enrolled` (invited only), `unknown-client`, `revoked`.
    """

    def work(tx: Transaction) -> MemberKey:
        row = _known_client(tx, find_study(tx, study).id, client)
        if row.state == "revoked":
            raise Rejected("revoked", "this client was put out of the study; ask the operator")
        return MemberKey(study, client, row.public_key, row.state)

    return coordinator.database.read("identify-client", work)


def roster(coordinator: Coordinator, study: str, round: int | None = None) -> Roster:
    """The members as they are, or, of a round that sums under masks, those active at its opening.

    Raises:
        Rejected: `unknown-study`.
    """

    def work(tx: Transaction) -> Roster:
        row = find_study(tx, study)
        opened_with = None if round is None else members_at_opening(find_session(tx, row.id, round))
        if opened_with is not None:
            then = [RosterEntry(client=name, public_key=key, state="active") for name, key in opened_with[1].items()]
            return Roster(study=study, members=then, fingerprint=opened_with[0])
        members = [roster_entry(client) for client in clients(tx, row.id)]
        return Roster(study=study, members=members, fingerprint=row.roster_sha256)

    return coordinator.database.read("show-roster", work)


def rotate_key(coordinator: Coordinator, study: str, client: str, request: KeyRotation) -> RosterEntry:
    """Repeatable.

    Raises:
        Rejected: `unknown-study`, `not-enrolled`, `unknown-client`, `revoked` (also withdrawn).
        SigningError: the proof is not the new key's.
    """
    proven = {"client": client, "study": study, "key": request.public_key}
    verify_document(decode_public_key(request.public_key), ENROLMENT, proven, request.proof)

    def work(tx: Transaction) -> RosterEntry:
        row = lock_study(tx, study)
        member = _known_client(tx, row.id, client)
        if member.state != "active":
            raise Rejected("revoked", "this client takes part no longer; ask the operator for an invitation")
        if member.public_key != request.public_key:
            member.public_key = request.public_key
            tx.session.flush()
            update_fingerprint(tx, row)
            append_event(tx, row, "client-key-rotated")
        return roster_entry(member)

    return coordinator.database.write("rotate-key", work)


def revoke(coordinator: Coordinator, study: str, client: str) -> RosterEntry:
    """The operator puts a client out; it counts as missing in the round under way. Repeatable.

    Raises:
        Rejected: `unknown-study`, `not-enrolled`, `unknown-client`.
    """
    return coordinator.database.write("revoke-client", lambda tx: _leave(tx, study, client, "revoked"))


def withdraw(coordinator: Coordinator, study: str, client: str) -> RosterEntry:
    """A hospital leaves; as `revoke`, on its own behalf. Repeatable."""
    return coordinator.database.write("withdraw-client", lambda tx: _leave(tx, study, client, "withdrawn"))


def use_token(coordinator: Coordinator, study: str, client: str, token_id: str) -> None:
    """Remember a request token that may be used once. Raises Rejected `replayed`."""

    def work(tx: Transaction) -> None:
        study_id = find_study(tx, study).id
        tx.session.execute(delete(UsedTokenRow).where(UsedTokenRow.forget_at < tx.now()))
        # A token is valid for one lifetime around its issue, so after two it is too old anyway.
        forget_at = tx.now() + 2 * TOKEN_LIFETIME_SECONDS
        tx.session.add(UsedTokenRow(study_id=study_id, client=client, token_id=token_id, forget_at=forget_at))
        try:
            tx.session.flush()
        except IntegrityError as error:
            raise Rejected("replayed", "this request was seen before; sign it again with a new jti") from error

    coordinator.database.write("use-token", work)


def update_fingerprint(tx: Transaction, study: StudyRow) -> None:
    """Recompute what hospitals pin from the active members."""
    active = [(client.name, client.public_key) for client in clients(tx, study.id) if client.state == "active"]
    study.roster_sha256 = roster_fingerprint(study.name, active)


def _leave(tx: Transaction, study: str, client: str, state: ClientState) -> RosterEntry:
    row = lock_study(tx, study)
    member = _known_client(tx, row.id, client)
    if member.state in (state, "revoked"):
        return roster_entry(member)
    was_active, member.state = member.state == "active", state
    tx.session.flush()
    if was_active:
        update_fingerprint(tx, row)
        _count_as_missing(tx, row, client)
    append_event(tx, row, f"client-{state}")
    return roster_entry(member)


def _count_as_missing(tx: Transaction, study: StudyRow, client: str) -> None:
    round = lock_open_round(tx, study.id)
    taking_part = None if round is None else tx.session.get(ParticipantRow, (study.id, round.number, client))
    if round is None or taking_part is None or taking_part.state != "sampled":
        return
    taking_part.state = "missing"
    session = lock_session(tx, study.id, round.number)
    if session is not None:
        leave_session(tx, study, session, client)


def _known_client(tx: Transaction, study_id: int, client: str) -> ClientRow:
    row = find_client(tx, study_id, client)
    if row is not None:
        return row
    invited = select(InvitationRow.id).where(InvitationRow.study_id == study_id, InvitationRow.client == client)
    if tx.session.scalar(invited.limit(1)) is not None:
        raise Rejected("not-enrolled", "this client is invited but has not enrolled yet")
    raise Rejected("unknown-client", "the study has no client of this name")
