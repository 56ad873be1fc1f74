"""Invitations and enrolment: how a hospital becomes a member of a study."""

from __future__ import annotations

import hashlib
import hmac

from sqlalchemy import select

from client_sdk.protocol.study.messages import Enrolment, EnrolmentRequest, Invitation, InvitationCreate
from client_sdk.protocol.wire.signing import ENROLMENT, decode_public_key, verify_document
from server.db.repositories import append_event, find_client, lock_study
from server.db.session import Transaction
from server.db.tables import ClientRow, InvitationRow, StudyRow
from server.domain.errors import Rejected
from server.domain.ports import Written
from server.domain.study import require_open
from server.services.coordinator import Coordinator
from server.services.studies.roster import (
    MemberKey,
    identify,
    revoke,
    roster,
    rotate_key,
    update_fingerprint,
    use_token,
    withdraw,
)
from server.services.views import at

__all__ = ["MemberKey", "enrol", "identify", "invite", "revoke", "roster", "rotate_key", "use_token", "withdraw"]

_PREFIX = "wri"


def invite(coordinator: Coordinator, study: str, request: InvitationCreate) -> Invitation:
    """A one-time token for one client name.

    Raises:
        Rejected: `unknown-study`, `study-finished`, `frozen` (a client of this name has enrolled already).
    """
    id, secret = coordinator.coins.token(8).hex(), coordinator.coins.token(32).hex()

    def work(tx: Transaction) -> Invitation:
        row = lock_study(tx, study)
        require_open(row.state)
        if find_client(tx, row.id, request.client) is not None:
            raise Rejected("frozen", "a client of this name has enrolled already; invite under another name")
        invitation = InvitationRow(
            id=id,
            study_id=row.id,
            client=request.client,
            secret_sha256=_hashed(secret),
            expires_at=tx.now() + request.expires_in_seconds,
        )
        tx.session.add(invitation)
        token = f"{_PREFIX}_{id}_{secret}_{coordinator.signer.fingerprint}"
        return Invitation(study=study, client=request.client, token=token, expires_at=at(invitation.expires_at))

    return coordinator.database.write("invite", work)


def enrol(coordinator: Coordinator, request: EnrolmentRequest) -> Written[Enrolment]:
    """Exchange an invitation for membership. Same token and key again: the same answer, created False.

    Raises:
        Rejected: `invitation-unknown`, `invitation-used`, `invitation-expired`, `study-finished`.
        SigningError: the proof is not the new key's.
    """
    id, secret = _parts(request.token)
    proven = {"invitation": id, "key": request.public_key}
    verify_document(decode_public_key(request.public_key), ENROLMENT, proven, request.proof)

    def work(tx: Transaction) -> Written[Enrolment]:
        invitation, study = _lock_invitation(tx, id, secret)
        answer = Enrolment(
            study=study.name,
            client=invitation.client,
            coordinator_key=coordinator.signer.public_key,
            origin=coordinator.origin,
        )
        if invitation.used_by_key == request.public_key:
            return Written(answer, created=False)
        _use(tx, invitation, study, request.public_key)
        return Written(answer, created=True)

    return coordinator.database.write("enrol", work)


def _use(tx: Transaction, invitation: InvitationRow, study: StudyRow, public_key: str) -> None:
    if invitation.used_at is not None:
        raise Rejected("invitation-used", "the invitation was used with another key; ask for a new one")
    if tx.now() >= invitation.expires_at:
        raise Rejected("invitation-expired", "the invitation has expired; ask for a new one")
    require_open(study.state)
    if find_client(tx, study.id, invitation.client) is not None:
        raise Rejected("invitation-used", "a client of this name has enrolled already; ask for another name")
    invitation.used_at, invitation.used_by_key = tx.now(), public_key
    client = ClientRow(
        study_id=study.id, name=invitation.client, public_key=public_key, state="active", enrolled_at=tx.now()
    )
    tx.session.add(client)
    tx.session.flush()
    update_fingerprint(tx, study)
    append_event(tx, study, "client-enrolled")


def _lock_invitation(tx: Transaction, id: str, secret: str) -> tuple[InvitationRow, StudyRow]:
    invitation = tx.session.get(InvitationRow, id)
    fits = hmac.compare_digest(_hashed(secret), invitation.secret_sha256 if invitation is not None else "")
    if invitation is None or not fits:
        raise _unknown()
    study = tx.session.scalars(select(StudyRow).where(StudyRow.id == invitation.study_id).with_for_update()).one()
    tx.session.refresh(invitation)
    return invitation, study


def _parts(token: str) -> tuple[str, str]:
    parts = token.split("_")
    if len(parts) != 4 or parts[0] != _PREFIX:
        raise _unknown()
    return parts[1], parts[2]


def _unknown() -> Rejected:
    return Rejected("invitation-unknown", "there is no such invitation; check that the token is complete")


def _hashed(secret: str) -> str:
    # A 256-bit random secret needs no slow hash.
    return hashlib.sha256(secret.encode()).hexdigest()
