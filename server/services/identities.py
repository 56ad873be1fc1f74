"""The keys that sign for clients. Asked at every request: one statement for all of a study, without a cache."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Text, bindparam, cast, select

from server.db.row_checks import WRONG_VALUE, RowBroken
from server.db.tables import ClientRow, StudyRow
from server.services.coordinator import Coordinator
from server.services.studies.programs import stored_program
from study_protocol.study.messages import ClientState
from study_protocol.versions import UNNUMBERED, ProgramVersion, is_protocol, min_protocol
from study_protocol.wire.signing import SigningError, decode_public_key
from study_protocol.wire.values import NAME_PATTERN

NAME = re.compile(NAME_PATTERN)
_OF_STUDY = (
    select(
        ClientRow.name,
        ClientRow.public_key,
        ClientRow.state,
        ClientRow.program,
        ClientRow.protocol,
        StudyRow.protocol,
        cast(StudyRow.settings, Text),
    )
    .join(StudyRow, StudyRow.id == ClientRow.study_id)
    .where(StudyRow.name == bindparam("study"))
)
_MEMBERS = _OF_STUDY.where(ClientRow.name.in_(bindparam("clients", expanding=True)))
# Its text is the same every time: asked at every request, it need not be put together again.
_MEMBER = _OF_STUDY.where(ClientRow.name == bindparam("client"))
_key = lru_cache(maxsize=4096)(decode_public_key)


@lru_cache(maxsize=1024)
def _needed_by(settings: str) -> int:
    """Return the number that this coordinator's wire needs for these settings, a text of JSON."""
    try:
        return min_protocol(json.loads(settings))
    except WRONG_VALUE:
        # No settings: requests that need more than a key find this out, and the study is stopped.
        return UNNUMBERED


@dataclass(frozen=True)
class MemberIdentity:
    """A member of a study, in any state. `public_key` is the text that is stored, `key` is its value.

    protocol  the least number of the protocol that its program must speak in this study now. It may be more than the
              study was created with
    program   the program that it is known to run, as far as it is
    """

    public_key: str
    key: Ed25519PublicKey
    state: ClientState
    protocol: int
    program: ProgramVersion | None


def identify(coordinator: Coordinator, members: Sequence[tuple[str, str]]) -> list[MemberIdentity | RowBroken | None]:
    """Return for each (study, client), in their order, its key and state, or the fault of its row.

    None if there is no such study or no such client. One query answers for all missing names, so time tells no
    difference.
    """
    clients_by_study: defaultdict[str, set[str]] = defaultdict(set)
    for study, client in members:
        clients_by_study[_valid_name(study)].add(_valid_name(client))
    members_by_study = {study: _rows(coordinator, study, clients) for study, clients in clients_by_study.items()}
    return [_member_of(members_by_study[_valid_name(study)].get(_valid_name(client))) for study, client in members]


def _valid_name(name: str) -> str:
    # An invalid name is in no row. PostgreSQL would refuse a text with NUL as an error.
    return name if NAME.fullmatch(name) else ""


def _rows(coordinator: Coordinator, study: str, clients: Collection[str]) -> Mapping[str, tuple[Any, ...]]:
    if len(clients) == 1:
        rows = coordinator.database.look(_MEMBER, {"study": study, "client": next(iter(clients))})
    else:
        rows = coordinator.database.look(_MEMBERS, {"study": study, "clients": list(clients)})
    return {name: tuple(member) for name, *member in rows}


def _member_of(row: tuple[Any, ...] | None) -> MemberIdentity | RowBroken | None:
    if row is None:
        return None
    public_key, state, version, spoken, protocol, settings = row
    try:
        key = _key(public_key)
    except (SigningError, TypeError, AttributeError):
        return RowBroken("clients.public_key holds what the coordinator never writes")
    if state not in get_args(ClientState):
        return RowBroken("clients.state holds what the coordinator never writes")
    if not is_protocol(protocol):
        return RowBroken("studies.protocol holds what the coordinator never writes")
    # A study that an older version created goes on over the wire of this one: its next session is of today's kind.
    needed = max(protocol, _needed_by(settings))
    return MemberIdentity(public_key, key, state, needed, stored_program(version, spoken))
