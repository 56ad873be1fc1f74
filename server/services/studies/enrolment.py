"""Membership: invitations and enrolment, key rotations, revocations, withdrawals, tokens that may be used once."""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from accounting.budget.bodies import RosterChange
from server.db import rows
from server.db.ledger_store import LedgerAccount, lock_account
from server.db.session import Transaction
from server.db.session_store import lock_session
from server.db.tables import ClientRow, InvitationRow, ParticipantRow, StudyRow, UsedTokenRow
from server.domain.change_request import ChangeRequest
from server.domain.errors import Rejected
from server.domain.study import require_open
from server.domain.versions import needed_protocol, require_spoken
from server.services.coordinator import Coordinator, Written
from server.services.people.audit import record_operated, write_entry
from server.services.secure_sum.exchanges import leave_session
from server.services.tampered_studies import stopping_where_rows_differ
from server.services.views import at, roster_entry
from study_protocol.study.audit_log import Actor
from study_protocol.study.messages import (
    Enrolment,
    EnrolmentRequest,
    Invitation,
    InvitationCreate,
    KeyRotation,
    RosterEntry,
)
from study_protocol.versions import ProgramVersion
from study_protocol.wire.signing import (
    ENROLMENT,
    TOKEN_LIFETIME_SECONDS,
    decode_public_key,
    roster_fingerprint,
    verify_document,
)

_PREFIX = "wri"


def invite(coordinator: Coordinator, study: str, request: InvitationCreate) -> Invitation:
    """Return a one-time token for one client name.

    Raises:
        Rejected: `unknown-study`, `study-finished`, `frozen` (a client of this name has enrolled already).
    """
    id, secret = coordinator.coins.token(8).hex(), coordinator.coins.token(32).hex()

    def work(tx: Transaction) -> Invitation:
        row = rows.lock_study(tx, study)
        require_open(row.state)
        if rows.find_client(tx, row.id, request.client) is not None:
            raise Rejected("frozen", "a client of this name has enrolled already: invite under another name")
        if any(witness.name == request.client for witness in rows.settings_of(row).schedule.witnesses):
            raise Rejected("frozen", "an outside witness has this name: invite under another name")
        invitation = InvitationRow(
            id=id,
            study_id=row.id,
            client=request.client,
            secret_sha256=_hashed(secret),
            expires_at=tx.now() + request.expires_in_seconds,
        )
        tx.session.add(invitation)
        record_operated(coordinator, tx, row, "invite", client=request.client)
        # With the fingerprint the hospital can pin this coordinator from the token alone, even against a false server.
        token = f"{_PREFIX}_{id}_{secret}_{coordinator.signer.fingerprint}"
        return Invitation(study=study, client=request.client, token=token, expires_at=at(invitation.expires_at))

    return coordinator.database.write("invite", work)


def enrol(
    coordinator: Coordinator, request: EnrolmentRequest, program: ProgramVersion | None, request_id: str = ""
) -> Written[Enrolment]:
    """Exchange an invitation for membership. Same token and key again: the same answer, created False.

    Args:
        program: the program that enrols. None: it names none. Its word alone, since no key signs for it yet.
        request_id: for the audit log.

    Raises:
        Rejected: `invitation-unknown`, `invitation-used`, `invitation-expired`, `study-finished`, or `client-too-old`,
            which leaves the invitation unused.
        SigningError: the proof is not the new key's.
    """
    id, secret = _parts(request.token)
    proven = {"invitation": id, "key": request.public_key}
    # Without it a stranger's public key could be enrolled, and its owner's signatures would count here.
    verify_document(decode_public_key(request.public_key), ENROLMENT, proven, request.proof)

    def work(tx: Transaction) -> Written[Enrolment]:
        # Its head is locked before the study, as by every other change.
        client, study_name = _named_in(tx, id, secret)
        asked = ChangeRequest(Actor(kind="hospital", name=client), study_name, "enrol", "/v1/enrolments", request_id)
        write_entry(tx, coordinator.signer, asked)
        invitation, study = _lock_invitation(tx, id)
        answer = Enrolment(
            study=study.name,
            client=invitation.client,
            coordinator_key=coordinator.signer.public_key,
            origin=coordinator.origin,
        )
        # Before every other check: a lost answer may be asked for again after the invitation has expired.
        if invitation.used_by_key == request.public_key:
            return Written(answer, created=False)
        _use(coordinator, tx, invitation, study, request.public_key, program)
        return Written(answer, created=True)

    return stopping_where_rows_differ(coordinator, lambda: coordinator.database.write("enrol", work))


def _use(
    coordinator: Coordinator,
    tx: Transaction,
    invitation: InvitationRow,
    study: StudyRow,
    public_key: str,
    program: ProgramVersion | None,
) -> None:
    if invitation.used_at is not None:
        raise Rejected("invitation-used", "the invitation was used with another key: ask for a new one")
    if tx.now() >= invitation.expires_at:
        raise Rejected("invitation-expired", "the invitation has expired: ask for a new one")
    require_open(study.state)
    if rows.find_client(tx, study.id, invitation.client) is not None:
        raise Rejected("invitation-used", "a client of this name has enrolled already: ask for another name")
    # Before anything is changed: what a change is recorded over must be what was signed.
    account = lock_account(tx, coordinator.signer, study)
    require_spoken(needed_protocol(study.protocol, study.settings), program or ProgramVersion(), enrols=True)
    invitation.used_at, invitation.used_by_key = tx.now(), public_key
    client = ClientRow(
        study_id=study.id, name=invitation.client, public_key=public_key, state="active", enrolled_at=tx.now()
    )
    if program is not None:
        client.program, client.protocol, client.program_since = program.version, program.protocol, tx.now()
    tx.session.add(client)
    tx.session.flush()
    _record(tx, account, study, "enrolled")
    rows.append_event(tx, study, "client-enrolled")


def _named_in(tx: Transaction, invitation_id: str, secret: str) -> tuple[str, str]:
    """Return the client and the study of an invitation. Raises Rejected `invitation-unknown`."""
    invitation = tx.session.get(InvitationRow, invitation_id)
    # Compared in constant time whether or not the invitation exists.
    fits = hmac.compare_digest(_hashed(secret), invitation.secret_sha256 if invitation is not None else "")
    if invitation is None or not fits:
        raise _unknown()
    return invitation.client, tx.session.get_one(StudyRow, invitation.study_id).name


def _lock_invitation(tx: Transaction, invitation_id: str) -> tuple[InvitationRow, StudyRow]:
    invitation = tx.session.get_one(InvitationRow, invitation_id)
    study = tx.session.scalars(select(StudyRow).where(StudyRow.id == invitation.study_id).with_for_update()).one()
    # It was read before the lock: another enrolment may have used it while this one waited.
    tx.session.refresh(invitation)
    return invitation, study


def _parts(token: str) -> tuple[str, str]:
    parts = token.split("_")
    if len(parts) != 4 or parts[0] != _PREFIX:
        raise _unknown()
    return parts[1], parts[2]


def _unknown() -> Rejected:
    return Rejected("invitation-unknown", "there is no such invitation: check that the token is complete")


def _hashed(secret: str) -> str:
    # A 256-bit random secret needs no slow hash.
    return hashlib.sha256(secret.encode()).hexdigest()


def rotate_key(coordinator: Coordinator, study: str, client: str, request: KeyRotation) -> RosterEntry:
    """Repeatable.

    Raises:
        Rejected: `unknown-study`, `not-enrolled`, `unknown-client`, `revoked` (also withdrawn).
        SigningError: the proof is not the new key's.
    """
    proven = {"client": client, "study": study, "key": request.public_key}
    verify_document(decode_public_key(request.public_key), ENROLMENT, proven, request.proof)

    def work(tx: Transaction) -> RosterEntry:
        row = rows.lock_study(tx, study)
        member = rows.known_client(tx, row.id, client)
        if member.state != "active":
            raise Rejected("revoked", "this client no longer takes part: ask the study's lead for an invitation")
        if member.public_key != request.public_key:
            account = _account(coordinator, tx, row)
            member.public_key = request.public_key
            tx.session.flush()
            _record(tx, account, row, "key-rotated")
            rows.append_event(tx, row, "client-key-rotated")
        return roster_entry(member)

    return stopping_where_rows_differ(coordinator, lambda: coordinator.database.write("rotate-key", work))


def revoke(coordinator: Coordinator, study: str, client: str) -> RosterEntry:
    """Revoke a client for the lead. It counts as missing in the round under way. Repeatable.

    Raises:
        Rejected: `unknown-study`, `not-enrolled`, `unknown-client`.
    """
    return _put_out(coordinator, study, client, "revoked")


def withdraw(coordinator: Coordinator, study: str, client: str) -> RosterEntry:
    """Withdraw a hospital on its own behalf, as `revoke`. Repeatable."""
    return _put_out(coordinator, study, client, "withdrawn")


def use_token(coordinator: Coordinator, study: str, client: str, token_id: str) -> None:
    """Remember a request token that may be used once. Raises Rejected `replayed`."""

    def work(tx: Transaction) -> None:
        study_id = rows.find_study(tx, study).id
        # Here, because the table grows here: no other task has to remember it.
        tx.session.execute(delete(UsedTokenRow).where(UsedTokenRow.forget_at < tx.now()))
        # A token is good for little more than one lifetime, so after two it is too old anyway.
        forget_at = tx.now() + 2 * TOKEN_LIFETIME_SECONDS
        tx.session.add(UsedTokenRow(study_id=study_id, client=client, token_id=token_id, forget_at=forget_at))
        try:
            # The primary key decides between two that come at once. A look before the insert could not.
            tx.session.flush()
        except IntegrityError as error:
            raise Rejected("replayed", "this request was seen before: sign it again with a new jti") from error

    coordinator.database.write("use-token", work)


def _account(coordinator: Coordinator, tx: Transaction, study: StudyRow) -> LedgerAccount | None:
    """Return the study's account. None if the study is finished, and its ledger has ended."""
    return None if study.state == "finished" else lock_account(tx, coordinator.signer, study)


def _record(tx: Transaction, account: LedgerAccount | None, study: StudyRow, change: RosterChange) -> None:
    """Record in the ledger that the roster has changed. Hospitals pin a value computed from its active members."""
    study.roster_sha256 = roster_fingerprint(study.name, rows.active_members(tx, study.id))
    if account is not None:
        account.record_roster(change)


def _put_out(coordinator: Coordinator, study: str, client: str, state: Literal["revoked", "withdrawn"]) -> RosterEntry:
    def work(tx: Transaction) -> RosterEntry:
        return _leave(coordinator, tx, study, client, state)

    return stopping_where_rows_differ(coordinator, lambda: coordinator.database.write("leave-study", work))


def _leave(
    coordinator: Coordinator, tx: Transaction, study: str, client: str, state: Literal["revoked", "withdrawn"]
) -> RosterEntry:
    row = rows.lock_study(tx, study)
    member = rows.known_client(tx, row.id, client)
    # A revocation stays: a revoked client did not leave by itself.
    if member.state in (state, "revoked"):
        return roster_entry(member)
    was_active, account = member.state == "active", _account(coordinator, tx, row)
    if was_active and state == "revoked" and account is not None:
        # Before the hospital leaves: only a roster's entry changes the number of members.
        record_operated(coordinator, tx, row, "revoke", account, client=client)
    member.state = state
    tx.session.flush()
    if was_active:
        _record(tx, account, row, state)
        _count_as_missing(coordinator, tx, row, client)
    rows.append_event(tx, row, f"client-{state}")
    return roster_entry(member)


def _count_as_missing(coordinator: Coordinator, tx: Transaction, study: StudyRow, client: str) -> None:
    round = rows.lock_open_round(tx, study.id)
    taking_part = None if round is None else tx.session.get(ParticipantRow, (study.id, round.number, client))
    # Updates that arrived count: they were given while their sender was a member.
    if round is None or taking_part is None or taking_part.state != "sampled":
        return
    taking_part.state = "missing"
    session = lock_session(tx, study.id, round.number)
    if session is not None:
        leave_session(coordinator, tx, study, session, client)
