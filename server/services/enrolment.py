"""Invitations, enrolment, and who takes part: identity keys, rotations, revocations, withdrawals."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk.protocol.messages import (
    ClientState,
    Enrolment,
    EnrolmentRequest,
    Invitation,
    InvitationCreate,
    KeyRotation,
    Roster,
    RosterEntry,
)
from server.services.ports import Coordinator, Written


@dataclass(frozen=True)
class Identity:
    """One client of one study as the coordinator knows it."""

    study: str
    client: str
    public_key: str
    state: ClientState


def invite(coordinator: Coordinator, study: str, request: InvitationCreate) -> Invitation:
    """A one-time token for one client name.

    Raises:
        Rejected: `unknown-study`, `study-finished`, `frozen` (a client of this name takes part already).
    """
    raise NotImplementedError


def enrol(coordinator: Coordinator, request: EnrolmentRequest) -> Written[Enrolment]:
    """Exchange an invitation for membership. Same token and key again: the same answer, created False.

    Raises:
        Rejected: `invitation-unknown`, `invitation-used`, `invitation-expired`, `study-finished`.
        SigningError: the proof is not the new key's.
    """
    raise NotImplementedError


def identify(coordinator: Coordinator, study: str, client: str) -> Identity:
    """Whose key signs for `client`; withdrawn clients are still known.

    Raises:
        Rejected: `unknown-study`, `not-enrolled` (invited only), `unknown-client`, `revoked`.
    """
    raise NotImplementedError


def roster(coordinator: Coordinator, study: str) -> Roster:
    """Raises Rejected `unknown-study`."""
    raise NotImplementedError


def rotate_key(coordinator: Coordinator, study: str, client: str, request: KeyRotation) -> RosterEntry:
    """Repeatable. Raises Rejected as `identify`; SigningError when the proof is not the new key's."""
    raise NotImplementedError


def revoke(coordinator: Coordinator, study: str, client: str) -> RosterEntry:
    """The operator puts a client out; it counts as missing in the round under way. Repeatable."""
    raise NotImplementedError


def withdraw(coordinator: Coordinator, study: str, client: str) -> RosterEntry:
    """A hospital leaves; as `revoke`, on its own behalf. Repeatable."""
    raise NotImplementedError


def use_token(coordinator: Coordinator, study: str, client: str, token_id: str) -> None:
    """Remember a request token that may be used once. Raises Rejected `replayed`."""
    raise NotImplementedError
