"""Sessions of people who logged in at the identity provider: `wrs_<id>_<secret>`, for a cookie or a file.

A session keeps the groups of its login. The roles that they give are looked up at every request.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from sqlalchemy import delete

from server.db.people_tables import LoginSessionRow
from server.db.session import Transaction
from server.domain.change_request import ChangeRequest
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people.audit import acting
from server.services.people.person import Person
from server.services.people.rows import find_sound, sound_rows
from server.services.people.secrets import id_of, is_secret_of, new_token
from server.services.views import at
from server.single_sign_on.grants import grants_of_groups
from server.single_sign_on.identity import PersonIdentity
from study_protocol.study.people import GrantView, PersonSession, PersonSessions
from study_protocol.study.roles import Grant

PREFIX = "wrs"
_NOT_VALID = "the session is not valid, or was ended: log in again"


def begin_session(
    coordinator: Coordinator, identity: PersonIdentity, seconds: float, operation: str, address: str, request_id: str
) -> PersonSession:
    """Begin the session of a person who has just logged in. Only this answer shows its token.

    Args:
        seconds: How long it lasts.
        operation, address, request_id: Of the request, for the audit log of the coordinator.

    Raises:
        Rejected: `forbidden`: the person's groups give no role here.
    """
    grants = grants_of_groups(coordinator.group_grants, identity.groups)
    if not grants:
        raise Rejected(
            "forbidden",
            "you are logged in, but your groups give you no role here: ask the study's lead for a group or a key",
        )
    token = new_token(coordinator, PREFIX)
    actor = Person(token.id, identity.name, grants, "session", identity.subject).acting_as("show_person", None)

    def work(tx: Transaction) -> LoginSessionRow:
        tx.session.execute(delete(LoginSessionRow).where(LoginSessionRow.expires_at <= tx.now()))
        row = LoginSessionRow(
            id=token.id,
            subject=identity.subject,
            name=identity.name,
            groups=list(identity.groups),
            secret_sha256=token.secret_sha256,
            created_at=tx.now(),
            expires_at=tx.now() + seconds,
        )
        tx.session.add(row)
        return row

    audited = acting(coordinator, ChangeRequest(actor, None, operation, address, request_id))
    return _view(audited, audited.database.write("begin-session", work), token.text)


def authenticate_session(coordinator: Coordinator, token: str) -> Person:
    """Return the person of a session. Raises Rejected `bad-token` for anything but a valid session."""
    match = _find(coordinator, id_of(token, PREFIX))
    row = None if match is None else match[0]
    fits = is_secret_of(token, None if row is None else row.secret_sha256)
    if match is None or row is None or not fits:
        raise Rejected("bad-token", _NOT_VALID)
    _require_not_expired(*match)
    grants = _grants(coordinator, row.groups)
    if not grants:
        raise Rejected("bad-token", "your groups give you no role here any more: log in again, or use a key")
    return Person(row.id, row.name, grants, "session", row.subject)


def require_session(coordinator: Coordinator, person: Person) -> None:
    """Raises Rejected `bad-token` once the session was ended, has expired, or gives other roles."""
    match = _find(coordinator, person.id)
    if match is None or _grants(coordinator, match[0].groups) != person.grants:
        raise Rejected("bad-token", _NOT_VALID)
    _require_not_expired(*match)


def list_sessions(coordinator: Coordinator) -> PersonSessions:
    """Return the sessions that have not expired, without their secrets."""

    def work(tx: Transaction) -> list[PersonSession]:
        return [
            _view(coordinator, row) for row in sound_rows(tx, LoginSessionRow, LoginSessionRow.expires_at > tx.now())
        ]

    return PersonSessions(sessions=coordinator.database.read("list-sessions", work))


def end_session(coordinator: Coordinator, session_id: str) -> None:
    """End a session: from now on it is refused. Repeatable, and an unknown one has ended."""

    def work(tx: Transaction) -> None:
        tx.session.execute(delete(LoginSessionRow).where(LoginSessionRow.id == session_id))

    coordinator.database.write("end-session", work)


def csrf_token_of(token: str) -> str:
    """Return what a browser's script sends beside the cookie with this token. No other site can read it."""
    return hmac.new(token.encode(), b"wardround/csrf", hashlib.sha256).hexdigest()


def _grants(coordinator: Coordinator, groups: list[Any]) -> tuple[Grant, ...]:
    return grants_of_groups(coordinator.group_grants, groups)


def _require_not_expired(row: Any, now: float) -> None:
    if now >= row.expires_at:
        raise Rejected("bad-token", "the session has expired: log in again")


def _find(coordinator: Coordinator, session_id: str | None) -> tuple[Any, float] | None:
    """Return the session's row and the database's time."""
    if session_id is None:
        return None

    def work(tx: Transaction) -> tuple[Any, float] | None:
        row = find_sound(tx, LoginSessionRow, session_id)
        return None if row is None else (row, tx.now())

    return coordinator.database.read("find-session", work)


def _view(coordinator: Coordinator, row: LoginSessionRow, token: str | None = None) -> PersonSession:
    grants = [GrantView(role=grant.role, study=grant.study) for grant in _grants(coordinator, row.groups)]
    return PersonSession(
        id=row.id,
        subject=row.subject,
        name=row.name,
        grants=grants,
        token=token,
        created_at=at(row.created_at),
        expires_at=at(row.expires_at),
    )
