"""Logins from the command line, between their beginning and the moment when the person has logged in.

The command has a token of the coordinator's. The identity provider's code stays in the database.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import delete, func, select

from server.db.people_tables import DeviceLoginRow
from server.db.row_checks import RowBroken
from server.db.session import Transaction
from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.people.secrets import id_of, is_secret_of, new_token
from server.single_sign_on.logins import PendingDevice

PREFIX = "wrl"
# Beginning needs no key. Strangers can fill these places, and no more of the database and of the provider.
MOST_AT_ONCE = 200
# Longer than a question to the provider takes, which is up to five requests of ten seconds.
_ASKING_SECONDS = 60.0
_PENDING = TypeAdapter(PendingDevice)
_UNKNOWN = "there is no such login under way, or it took too long: start the login again"


def keep_login(coordinator: Coordinator, pending: PendingDevice, seconds: float) -> str:
    """Keep a login that has begun, and return its token. seconds: until it is of no use."""
    token = new_token(coordinator, PREFIX)

    def work(tx: Transaction) -> None:
        tx.session.add(
            DeviceLoginRow(
                id=token.id,
                secret_sha256=token.secret_sha256,
                pending=asdict(pending),
                asked_until=0.0,
                expires_at=tx.now() + seconds,
            )
        )

    coordinator.database.write("begin-device-login", work)
    return token.text


def require_room(coordinator: Coordinator) -> None:
    """Forget logins that took too long. Raises Rejected `too-many-logins`."""

    def work(tx: Transaction) -> int:
        tx.session.execute(delete(DeviceLoginRow).where(DeviceLoginRow.expires_at <= tx.now()))
        return tx.session.scalar(select(func.count()).select_from(DeviceLoginRow)) or 0

    if coordinator.database.write("count-device-logins", work) >= MOST_AT_ONCE:
        raise Rejected("too-many-logins", "too many logins are under way: try again in some minutes, or use a key")


def take_turn(coordinator: Coordinator, token: str) -> PendingDevice | None:
    """Return the login whose provider the caller asks now, or None while another process asks.

    Raises:
        Rejected: `unknown-login`.
    """

    def work(tx: Transaction) -> PendingDevice | None:
        row = _find(tx, token)
        if tx.now() < row.asked_until:
            return None
        row.asked_until = tx.now() + _ASKING_SECONDS
        try:
            return _PENDING.validate_python(row.pending)
        except ValidationError:
            # The column was changed.
            raise Rejected("unknown-login", _UNKNOWN) from None

    return coordinator.database.write("ask-device-login", work)


def give_turn_back(coordinator: Coordinator, token: str, pending: PendingDevice) -> None:
    """Keep what the provider answered, so that it can be asked again. Raises Rejected `unknown-login`."""

    def work(tx: Transaction) -> None:
        row = _find(tx, token)
        row.pending, row.asked_until = asdict(pending), 0.0

    coordinator.database.write("keep-device-login", work)


def forget_login(coordinator: Coordinator, token: str) -> None:
    """Delete a login that has ended, so that it ends once. Raises Rejected `unknown-login`: it has ended before."""

    def work(tx: Transaction) -> None:
        tx.session.delete(_find(tx, token))

    coordinator.database.write("end-device-login", work)


def _find(tx: Transaction, token: str) -> DeviceLoginRow:
    id = id_of(token, PREFIX)
    try:
        row: Any = None if id is None else tx.session.get(DeviceLoginRow, id, with_for_update=True)
    except RowBroken:
        row = None
    fits = is_secret_of(token, None if row is None else row.secret_sha256)
    if row is None or not fits or row.expires_at <= tx.now():
        raise Rejected("unknown-login", _UNKNOWN)
    return row
