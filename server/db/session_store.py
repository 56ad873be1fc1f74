"""Rows of a secure-sum session as the value that decides, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, TypeVar

from sqlalchemy import case, or_, select, update

from client_sdk.protocol.secure_sum.messages import (
    ConsistencyMessage,
    KeysMessage,
    Manifest,
    SessionParameters,
    SharesMessage,
    SumResult,
    UnmaskMessage,
)
from client_sdk.protocol.secure_sum.parameters import UPDATE
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.study.values import Message
from client_sdk.protocol.wire.signing import decode_public_key
from server.db import rows
from server.db.session import Transaction
from server.db.soundness import RowBroken
from server.db.tables import OctetsRow, SessionMessageRow, SessionRow, Step
from server.domain.rounds import SecureSumEnd
from server.domain.secure_sum import Session

M = TypeVar("M", bound=Message)
# Not shares and openings, each of which holds a slot for every other client: they are read when asked for.
_SMALL = ("keys", "manifest", "consistency", "left")


# Every request of a session reads these again, from rows that do not change.
_identity = lru_cache(maxsize=4096)(decode_public_key)
_parameters = lru_cache(maxsize=64)(SessionParameters.from_bytes)


def _sealed(model: type[M], body: str) -> M:
    return model.model_validate_json(body)


# For messages that every client is shown.
_public = lru_cache(maxsize=4096)(_sealed)


class MessageForgotten(LookupError):
    """What was said is erased with its round (`forget_shares`); that it was said is known."""


class _Forgotten(Enum):
    BODY = "forgotten"


_Body = str | Literal[_Forgotten.BODY] | None


class Messages(Mapping[str, M]):
    """One step's messages by client, parsed when read; of large ones only the asked-for client's body is here.

    Raises MessageForgotten for one that was erased, LookupError for one whose body is not here.
    """

    def __init__(
        self, model: type[M], bodies: Mapping[str, _Body], parse: Callable[[type[M], str], M] = _public
    ) -> None:
        self._model, self._bodies, self._parse = model, bodies, parse

    def __getitem__(self, client: str) -> M:
        match self._bodies[client]:
            case None:
                raise LookupError(f"the body of {client}'s message was not loaded")
            case _Forgotten.BODY:
                raise MessageForgotten(f"{client}'s message is erased with its round")
            case body:
                try:
                    return self._parse(self._model, body)
                except ValueError as error:
                    raise RowBroken("secure_sum_messages.body holds no message of its step") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)

    def __contains__(self, client: object) -> bool:
        return client in self._bodies


def masks_updates(row: SessionRow) -> bool:
    """Whether updates are among the session's vectors; else they came in the clear."""
    return _parameters(row.parameters).vector(UPDATE) is not None


def has_ended(row: SessionRow) -> bool:
    """Whether nothing more is said in it: its sums are open, or there will be none."""
    return row.phase in ("summed", "failed")


def end_of(row: SessionRow) -> SecureSumEnd:
    """What a session that has ended, or is cut off now, means for its round."""
    return SecureSumEnd(row.failure, row.opened, masks_updates(row))


def opened_sums(row: SessionRow) -> tuple[tuple[VectorSpec, str], ...]:
    """Every vector with the SHA-256 of its opened sum; none before they are open."""
    if row.result is None:
        return ()
    digests = SumResult.model_validate(row.result).digests
    return tuple((spec, digests[spec.name].hex()) for spec in _parameters(row.parameters).vectors)


def members_at_opening(row: SessionRow | None) -> tuple[str, dict[str, str]] | None:
    """Fingerprint of the roster that the session was opened with, and its members' identity keys."""
    if row is None or row.members is None:
        return None
    return _parameters(row.parameters).roster, row.members


def lock_session(tx: Transaction, study_id: int, round: int) -> SessionRow | None:
    """For a transaction that changes it."""
    return tx.session.get(SessionRow, (study_id, round), with_for_update=True)


def load_session(tx: Transaction, row: SessionRow, *, client: str | None = None, step: str | None = None) -> Session:
    """The session; bodies of shares and openings only of `client`, or all those of `step`."""
    said = _bodies(tx, row, client, step)
    frozen = {"keys": row.cohort, "shares": row.sharers, "manifest": row.survivors}
    if any(not said[name].keys() >= set(names) for name, names in frozen.items()):
        raise RowBroken("secure_sum_messages lacks what the session has frozen")
    if not set(row.survivors) <= set(row.sharers) <= set(row.cohort) <= row.roster.keys():
        raise RowBroken("secure_sum_sessions holds sets of which one is not in the one before")
    keys = Messages(KeysMessage, said["keys"])
    return Session(
        parameters=_parameters(row.parameters),
        roster={name: _identity(key) for name, key in row.roster.items()},
        phase=row.phase,
        keys=keys,
        # Not cached: read for one recipient, once.
        shares=Messages(SharesMessage, said["shares"], _sealed),
        manifests=Messages(Manifest, said["manifest"]),
        consistency=Messages(ConsistencyMessage, said["consistency"]),
        unmasks=Messages(UnmaskMessage, said["unmask"], _sealed),
        left=frozenset(said["left"]),
        cohort=tuple(keys[name] for name in row.cohort),
        sharers=tuple(row.sharers),
        survivors=tuple(row.survivors),
        failure=row.failure,
    )


def require_readable(tx: Transaction, study_id: int) -> None:
    """That every session of the study can be loaded with all that was said in it. Raises RowBroken."""
    for row in tx.session.scalars(select(SessionRow).where(SessionRow.study_id == study_id)):
        for step in ("shares", "unmask"):
            session = load_session(tx, row, step=step)
            said: tuple[Mapping[str, Any], ...] = (
                session.keys, session.shares, session.manifests, session.consistency, session.unmasks
            )  # fmt: skip
            for messages in said:
                for client in messages:
                    # Those of the other step are not here, and those of an ended round are erased.
                    with suppress(LookupError):
                        messages[client]


def store_phase(row: SessionRow, session: Session) -> None:
    """Write what `advance` froze."""
    deadlines = session.parameters.deadlines
    due = {"keys": deadlines.keys, "shares": deadlines.shares, "masked": deadlines.masked}
    row.phase, row.failure = session.phase, session.failure
    # From here on a client may have answered, whether or not its answer is here.
    row.opened = row.opened or session.phase in ("unmask", "summed")
    if session.phase == "unmask":
        # Fewer than t replies open nothing: the worker need not look.
        row.tried = max(row.tried, session.parameters.threshold - 1)
    # After the masked vectors a session waits as long as it lives: clients may answer hours later.
    row.due_at = None if has_ended(row) else float(due.get(session.phase, session.parameters.expires))
    row.cohort, row.sharers, row.survivors = list(session.members), list(session.sharers), list(session.survivors)


def record_message(tx: Transaction, row: SessionRow, client: str, step: Step, body: str | None) -> None:
    """What an admitted message says, in this transaction; IntegrityError if the client has said something there."""
    tx.session.add(SessionMessageRow(study_id=row.study_id, round=row.round, client=client, step=step, body=body))
    # Counted here, so that a worker sees what is new without reading messages.
    row.replies += step == "unmask"
    tx.session.flush()


def is_awaited(tx: Transaction, study_id: int, round: int, client: str) -> bool:
    """Whether the session waits for what the client says next, once it has its update."""
    row = rows.find_session(tx, study_id, round)
    # An update in the clear arrives before the vectors.
    waited_for = {} if row is None else {"masked": row.sharers, "consistency": row.survivors, "unmask": row.survivors}
    if row is None or client not in waited_for.get(row.phase, ()):
        return False
    last = (tx.session.get(SessionMessageRow, (study_id, round, client, step)) for step in ("unmask", "left"))
    return not any(last)


def octets_of(tx: Transaction, row: SessionRow, vector: str, clients: Sequence[str]) -> list[tuple[str, str]]:
    """(client, SHA-256) of one vector's octets."""
    wanted = select(OctetsRow.client, OctetsRow.sha256).where(
        OctetsRow.study_id == row.study_id, OctetsRow.round == row.round, OctetsRow.vector == vector
    )
    found = {client: sha256 for client, sha256 in tx.session.execute(wanted)}  # noqa: C416 - rows are not pairs to pyright
    return [(client, found[client]) for client in clients]


def forget_shares(tx: Transaction, study_id: int, round: int) -> None:
    """Scrub what could help to rebuild a secret; that it was said stays."""
    said = update(SessionMessageRow).where(
        SessionMessageRow.study_id == study_id,
        SessionMessageRow.round == round,
        SessionMessageRow.step.in_(("shares", "unmask")),
    )
    # Not row by row: what somebody else has written there goes, too.
    tx.session.execute(said.values(body=None, written_by=tx.name).execution_options(synchronize_session=False))


def _bodies(tx: Transaction, row: SessionRow, client: str | None, step: str | None) -> dict[str, dict[str, _Body]]:
    wanted = or_(SessionMessageRow.step.in_(_SMALL), SessionMessageRow.client == client, SessionMessageRow.step == step)
    query = select(
        SessionMessageRow.step,
        SessionMessageRow.client,
        case((wanted, SessionMessageRow.body), else_=None),
        SessionMessageRow.body.is_(None),
    ).where(SessionMessageRow.study_id == row.study_id, SessionMessageRow.round == row.round)
    said: dict[str, dict[str, _Body]] = {
        name: {} for name in ("keys", "shares", "manifest", "consistency", "unmask", "left")
    }
    for found, name, body, forgotten in tx.session.execute(query):
        said[found][name] = _Forgotten.BODY if forgotten else body
    return said
