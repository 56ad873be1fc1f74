"""API keys of people: `wrk_<id>_<secret>`, shown once, only the hash is stored."""

from __future__ import annotations

from typing import Any

from server.db.people_tables import ApiKeyRow
from server.db.session import Transaction
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people.audit import log_in_study, naming_key
from server.services.people.person import Person
from server.services.people.rows import find_sound, sound_rows
from server.services.people.secrets import id_of, is_secret_of, new_token
from server.services.views import at
from study_protocol.study.people import ApiKeyCreate, ApiKeyList, ApiKeyView, GivenKey
from study_protocol.study.roles import Grant, may_give

PREFIX = "wrk"
_DAY = 86400.0


def create_key(coordinator: Coordinator, request: ApiKeyCreate, giver: Person | None = None) -> ApiKeyView:
    """Create a key. Only this answer shows it. Old keys stay valid: rotate with overlap.

    giver  the person who gives it. None: a command on the coordinator's own machine

    Raises:
        Rejected: `forbidden`: this person may not give this role there.
    """
    _require_may_give(giver, Grant(request.role, request.study))
    token = new_token(coordinator, PREFIX)
    logged = naming_key(coordinator, GivenKey(id=token.id, secret_sha256=token.secret_sha256, **dict(request)))

    def work(tx: Transaction) -> ApiKeyRow:
        row = ApiKeyRow(
            id=token.id,
            role=request.role,
            study=request.study,
            name=request.name,
            secret_sha256=token.secret_sha256,
            created_at=tx.now(),
            expires_at=tx.now() + request.expires_in_days * _DAY,
        )
        tx.session.add(row)
        log_in_study(logged, tx, request.study)
        return row

    row = logged.database.write("create-api-key", work)
    return _view(row, key=token.text)


def list_keys(coordinator: Coordinator, asker: Person | None = None) -> ApiKeyList:
    """Return all keys ever made that this person may give, without their secrets."""

    def work(tx: Transaction) -> list[ApiKeyView]:
        return [_view(row) for row in sound_rows(tx, ApiKeyRow)]

    keys = coordinator.database.read("list-api-keys", work)
    return ApiKeyList(keys=[key for key in keys if asker is None or may_give(asker.grants, Grant(key.role, key.study))])


def revoke_key(coordinator: Coordinator, key_id: str, asker: Person | None = None) -> ApiKeyView:
    """Revoke a key. Repeatable.

    Raises:
        Rejected: `unknown-key` (also of a study in which this person gives no keys).
    """

    def work(tx: Transaction) -> ApiKeyView:
        row = tx.session.get(ApiKeyRow, key_id, with_for_update=True)
        if row is None or (asker is not None and not may_give(asker.grants, Grant(row.role, row.study))):
            raise Rejected("unknown-key", "there is no key of this id: see `wardround key list`")
        if row.revoked_at is None:
            row.revoked_at = tx.now()
        log_in_study(coordinator, tx, row.study)
        return _view(row)

    return coordinator.database.write("revoke-api-key", work)


def _require_may_give(giver: Person | None, grant: Grant) -> None:
    if giver is not None and not may_give(giver.grants, grant):
        raise Rejected(
            "forbidden", f"you may not give the role {grant}: a lead gives roles in its own study, except administrator"
        )


def authenticate(coordinator: Coordinator, key: str) -> Person:
    """Raises Rejected `bad-token` for anything but a valid key."""
    id = id_of(key, PREFIX)
    match = None if id is None else _find(coordinator, id)
    row = None if match is None else match[0]
    fits = is_secret_of(key, None if row is None else row.secret_sha256)
    if match is None or row is None or not fits or row.revoked_at is not None:
        raise Rejected("bad-token", "the API key is not valid: ask for a new one")
    _require_not_expired(*match)
    return Person(row.id, row.name, (Grant(row.role, row.study),))


def require_key(coordinator: Coordinator, person: Person) -> None:
    """Raises Rejected `bad-token` once the key is revoked, has expired, or gives another role."""
    match = _find(coordinator, person.id)
    if match is None or match[0].revoked_at is not None or (Grant(match[0].role, match[0].study),) != person.grants:
        raise Rejected("bad-token", "the API key is no longer valid: ask for a new one")
    _require_not_expired(*match)


def _require_not_expired(row: Any, now: float) -> None:
    if row.expires_at is not None and now >= row.expires_at:
        raise Rejected("bad-token", "the API key has expired: ask for a new one")


def _find(coordinator: Coordinator, key_id: str) -> tuple[Any, float] | None:
    """Return the key's row and the database's time."""

    def work(tx: Transaction) -> tuple[Any, float] | None:
        row = find_sound(tx, ApiKeyRow, key_id)
        return None if row is None else (row, tx.now() if row.expires_at is not None else 0.0)

    return coordinator.database.read("find-api-key", work)


def _view(row: ApiKeyRow, key: str | None = None) -> ApiKeyView:
    return ApiKeyView(
        id=row.id,
        role=row.role,
        study=row.study,
        name=row.name,
        key=key,
        secret_sha256=row.secret_sha256,
        created_at=at(row.created_at),
        expires_at=None if row.expires_at is None else at(row.expires_at),
        revoked_at=None if row.revoked_at is None else at(row.revoked_at),
    )
