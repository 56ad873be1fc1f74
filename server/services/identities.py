"""Whose key signs for a client. Asked at every request, so: one question, one statement, nothing remembered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import bindparam, select

from client_sdk.protocol.study.messages import ClientState
from client_sdk.protocol.study.values import NAME_PATTERN
from client_sdk.protocol.wire.signing import SigningError, decode_public_key
from server.db.soundness import RowBroken
from server.db.tables import ClientRow, StudyRow
from server.services.coordinator import Coordinator

NAME = re.compile(NAME_PATTERN)
_MEMBER = (
    select(ClientRow.public_key, ClientRow.state)
    .join(StudyRow, StudyRow.id == ClientRow.study_id)
    .where(StudyRow.name == bindparam("study"), ClientRow.name == bindparam("client"))
)
_key = lru_cache(maxsize=4096)(decode_public_key)


@dataclass(frozen=True)
class Known:
    """A member of a study, whatever its state; `public_key` as it is written, `key` as it is used."""

    public_key: str
    key: Ed25519PublicKey
    state: ClientState


def identify(coordinator: Coordinator, study: str, client: str) -> Known | None:
    """None where there is no such study or no such client: one query for whatever is missing, so time tells nothing.

    Raises:
        RowBroken: the member's row holds what the coordinator never writes.
    """
    # What is no name is in no row; PostgreSQL would refuse a text with NUL as an error.
    study, client = (name if NAME.fullmatch(name) else "" for name in (study, client))
    found = coordinator.database.look(_MEMBER, {"study": study, "client": client})
    if not found:
        return None
    public_key, state = found[0]
    try:
        key = _key(public_key)
    except (SigningError, TypeError, AttributeError) as error:
        raise RowBroken("clients.public_key holds what the coordinator never writes") from error
    if state not in get_args(ClientState):
        raise RowBroken("clients.state holds what the coordinator never writes")
    return Known(public_key, key, state)
