"""API keys of operators and viewers: `wrk_<id>_<secret>`, shown once, only the hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from sqlalchemy import Row, bindparam, select
from sqlalchemy.exc import NoResultFound

from server.db.row_checks import RowBroken
from server.db.session import Transaction
from server.db.tables import OperatorKeyRow, Role
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.views import at
from study_protocol.study.messages import OperatorKeyCreate, OperatorKeyList, OperatorKeyView

logger = logging.getLogger("wardround.coordinator")
_PREFIX = "wrk"
# Of columns, not of an object: every request of a person begins here.
_KEY = select(OperatorKeyRow.id, OperatorKeyRow.role, OperatorKeyRow.secret_sha256, OperatorKeyRow.revoked_at).where(
    OperatorKeyRow.id == bindparam("id")
)


@dataclass(frozen=True)
class Operator:
    """The holder of a valid API key."""

    id: str
    role: Role

    @property
    def lane(self) -> str:
        """Return the holder's name among callers. No study has a name that begins like this."""
        return f"_{self.id}"


def create_key(coordinator: Coordinator, request: OperatorKeyCreate) -> OperatorKeyView:
    """Create a key. Only this answer shows it. Old keys stay valid: rotate with overlap."""
    id, secret = coordinator.coins.token(8).hex(), coordinator.coins.token(32).hex()

    def work(tx: Transaction) -> OperatorKeyRow:
        row = OperatorKeyRow(
            id=id, role=request.role, label=request.label, secret_sha256=_hashed(secret), created_at=tx.now()
        )
        tx.session.add(row)
        return row

    row = coordinator.database.write("create-operator-key", work)
    return _view(row, key=f"{_PREFIX}_{id}_{secret}")


def list_keys(coordinator: Coordinator) -> OperatorKeyList:
    """Return all keys ever made, without their secrets."""

    def work(tx: Transaction) -> list[OperatorKeyView]:
        ids = select(OperatorKeyRow.id).order_by(OperatorKeyRow.created_at, OperatorKeyRow.id)
        return list(_readable(tx, tx.session.scalars(ids)))

    return OperatorKeyList(keys=coordinator.database.read("list-operator-keys", work))


def _readable(tx: Transaction, ids: Iterable[str]) -> Iterator[OperatorKeyView]:
    """Yield the keys, without those whose rows are broken, or the others could not be seen and revoked."""
    for id in ids:
        try:
            yield _view(tx.session.scalars(select(OperatorKeyRow).where(OperatorKeyRow.id == id)).one())
        except (NoResultFound, RowBroken) as broken:
            logger.error("left out of the list: %s", broken, extra={"event": "database-differs"})


def revoke_key(coordinator: Coordinator, key_id: str) -> OperatorKeyView:
    """Repeatable. Raises Rejected `unknown-key`."""

    def work(tx: Transaction) -> OperatorKeyView:
        row = tx.session.get(OperatorKeyRow, key_id, with_for_update=True)
        if row is None:
            raise Rejected("unknown-key", "there is no key of this id: ask for the list of keys")
        if row.revoked_at is None:
            row.revoked_at = tx.now()
        return _view(row)

    return coordinator.database.write("revoke-operator-key", work)


def authenticate(coordinator: Coordinator, key: str) -> Operator:
    """Raises Rejected `bad-token` for anything but a valid key."""
    prefix, _, rest = key.partition("_")
    id, _, secret = rest.partition("_")

    row = _find(coordinator, id) if prefix == _PREFIX else None
    # Compared in constant time whether or not the key exists. As text: the column may hold any value.
    fits = hmac.compare_digest(_hashed(secret).encode(), str(row.secret_sha256 if row is not None else "").encode())
    if row is None or not fits or row.revoked_at is not None or row.role not in get_args(Role):
        raise Rejected("bad-token", "the API key is not valid: ask an operator for a new one")
    return Operator(row.id, row.role)


def authenticate_each(coordinator: Coordinator, keys: Sequence[str]) -> list[Operator | Exception]:
    """As `authenticate`, of several keys in their order."""

    def authenticate_key(key: str) -> Operator | Exception:
        try:
            return authenticate(coordinator, key)
        except Rejected as rejected:
            return rejected

    return [authenticate_key(key) for key in keys]


def require_valid(coordinator: Coordinator, key_id: str) -> None:
    """Raises Rejected `bad-token` once the key is revoked."""
    row = _find(coordinator, key_id)
    if row is None or row.revoked_at is not None:
        raise Rejected("bad-token", "the API key is no longer valid: ask an operator for a new one")


def _find(coordinator: Coordinator, key_id: str) -> Row[str, Role, str, float | None] | None:
    return coordinator.database.read(
        "find-operator-key", lambda tx: tx.session.execute(_KEY, {"id": key_id}).one_or_none()
    )


def _hashed(secret: str) -> str:
    # A 256-bit random secret needs no slow hash.
    return hashlib.sha256(secret.encode()).hexdigest()


def _view(row: OperatorKeyRow, key: str | None = None) -> OperatorKeyView:
    return OperatorKeyView(
        id=row.id,
        role=row.role,
        label=row.label,
        key=key,
        created_at=at(row.created_at),
        revoked_at=None if row.revoked_at is None else at(row.revoked_at),
    )
