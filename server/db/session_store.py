"""Rows of a secure-sum session as the value that decides, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar, get_args

from sqlalchemy import select, update

from server.db import rows
from server.db.row_checks import RowBroken
from server.db.session import Transaction
from server.db.tables import SessionMessageRow, SessionRow, Step
from server.domain.rounds import SecureSumEnd
from server.domain.secure_sum_session import Session, changed
from study_protocol.secure_sum.messages import (
    ConsistencyMessage,
    KeysMessage,
    Manifest,
    SessionParameters,
    SharesMessage,
    SumResult,
    UnmaskMessage,
)
from study_protocol.secure_sum.parameters import ANSWER, UPDATE
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.wire.signing import decode_public_key
from study_protocol.wire.values import Message

M = TypeVar("M", bound=Message)
# Fields of a session, the steps at which they are said, and what is said.
_MESSAGES: tuple[tuple[str, Step, type[Message]], ...] = (
    ("keys", "keys", KeysMessage),
    ("shares", "shares", SharesMessage),
    ("manifests", "manifest", Manifest),
    ("consistency", "consistency", ConsistencyMessage),
    ("unmasks", "unmask", UnmaskMessage),
)
# Phases in which a client that has sent its update may still be waited for, and who is.
AWAITED = {"masked": "sharers", "consistency": "survivors", "unmask": "survivors"}
# Every request of a session reads these again, from rows that do not change.
_identity = lru_cache(maxsize=4096)(decode_public_key)
_parameters = lru_cache(maxsize=64)(SessionParameters.from_bytes)


# Steps whose messages `forget_shares` leaves.
_LASTING_STEPS = ("keys", "manifest", "consistency")


class MessageForgotten(LookupError):
    """The message was erased with its round (`forget_shares`). That it was sent is known."""


# None: erased.
_Body = str | None


class Messages(Mapping[str, M]):
    """One step's messages by client, of which some are erased: the others are parsed when they are read.

    Raises MessageForgotten for one that was erased.
    """

    def __init__(self, model: type[M], bodies: Mapping[str, _Body]) -> None:
        self._model, self._bodies = model, bodies

    def __getitem__(self, client: str) -> M:
        body = self._bodies[client]
        if body is None:
            raise MessageForgotten(f"{client}'s message is erased with its round")
        return _parsed(self._model, body)

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)

    def __contains__(self, client: object) -> bool:
        return client in self._bodies


def _parsed(model: type[M], body: str) -> M:
    try:
        return model.model_validate_json(body)
    except ValueError as error:
        raise RowBroken("secure_sum_messages.body holds no message of its step") from error


def _messages(model: type[M], bodies: Mapping[str, _Body]) -> Mapping[str, M]:
    if None in bodies.values():
        return Messages(model, bodies)
    return {client: _parsed(model, body) for client, body in bodies.items() if body is not None}


def parameters_of(row: SessionRow) -> SessionParameters:
    """As they were signed."""
    return _parameters(row.parameters)


def masks_updates(row: SessionRow) -> bool:
    """Return whether updates are among the session's vectors. Otherwise they came in the clear."""
    return any(_parameters(row.parameters).vector(name) is not None for name in (UPDATE, ANSWER))


def has_ended(row: SessionRow) -> bool:
    """Return whether no message follows: its sums are open, or there will be none."""
    return row.phase in ("summed", "failed")


def end_of(row: SessionRow) -> SecureSumEnd:
    """Return the consequence for its round of a session that has ended, or is cut off now."""
    return SecureSumEnd(row.failure, row.opened, masks_updates(row))


def opened_sums(row: SessionRow | None) -> tuple[tuple[VectorSpec, str], ...]:
    """Return every vector with the SHA-256 of its opened sum. Empty before they are open, and without a session."""
    if row is None or row.result is None:
        return ()
    digests = SumResult.model_validate(row.result).digests
    return tuple((spec, digests[spec.name].hex()) for spec in _parameters(row.parameters).vectors)


def members_at_opening(row: SessionRow | None) -> tuple[str, dict[str, str]] | None:
    """Return the fingerprint of the roster that the session was opened with, and its members' identity keys."""
    if row is None or row.members is None:
        return None
    return _parameters(row.parameters).roster, row.members


def lock_session(tx: Transaction, study_id: int, round_number: int) -> SessionRow | None:
    """Return the session, for a transaction that changes it."""
    return tx.session.get(SessionRow, (study_id, round_number), with_for_update=True)


def load_session(tx: Transaction, row: SessionRow) -> Session:
    """Return the session with all its messages.

    Raises:
        RowBroken: its rows are not what the coordinator writes.
    """
    bodies = _bodies(tx, row, after=0)
    _require_sets(row, bodies)
    keys = _messages(KeysMessage, bodies["keys"])
    return Session(
        parameters=_parameters(row.parameters),
        roster={name: _identity(key) for name, key in row.roster.items()},
        phase=row.phase,
        keys=keys,
        shares=_messages(SharesMessage, bodies["shares"]),
        manifests=_messages(Manifest, bodies["manifest"]),
        consistency=_messages(ConsistencyMessage, bodies["consistency"]),
        unmasks=_messages(UnmaskMessage, bodies["unmask"]),
        departed=frozenset(bodies["left"]),
        cohort=tuple(keys[name] for name in row.cohort),
        sharers=tuple(row.sharers),
        survivors=tuple(row.survivors),
        failure=row.failure,
    )


def continue_session(tx: Transaction, row: SessionRow, session: Session, version: int) -> Session:
    """Return the session as its rows are now, from its state at an earlier `version`: only newer messages are read."""
    bodies = _bodies(tx, row, after=version)
    fresh: dict[str, Any] = {}
    for name, step, model in _MESSAGES:
        if bodies[step]:
            fresh[name] = {**getattr(session, name), **_messages(model, bodies[step])}
    keys = fresh.get("keys", session.keys)
    # Frozen once: the same values stay, and all that was worked out of them.
    if not session.cohort and row.cohort:
        fresh["cohort"] = tuple(keys[name] for name in row.cohort)
    if not session.sharers and row.sharers:
        fresh["sharers"] = tuple(row.sharers)
    if not session.survivors and row.survivors:
        fresh["survivors"] = tuple(row.survivors)
    return changed(
        session, phase=row.phase, failure=row.failure, departed=session.departed | bodies["left"].keys(), **fresh
    )


def _require_sets(row: SessionRow, bodies: Mapping[str, Mapping[str, _Body]]) -> None:
    frozen = {"keys": row.cohort, "shares": row.sharers, "manifest": row.survivors}
    if any(not bodies[name].keys() >= set(names) for name, names in frozen.items()):
        raise RowBroken("secure_sum_messages lacks what the session has frozen")
    if not set(row.survivors) <= set(row.sharers) <= set(row.cohort) <= row.roster.keys():
        raise RowBroken("secure_sum_sessions holds sets of which one is not in the one before")


def require_readable(tx: Transaction, study_id: int) -> None:
    """Check that every session of the study can be loaded with all its messages. Raises RowBroken."""
    for row in tx.session.scalars(select(SessionRow).where(SessionRow.study_id == study_id)):
        session = load_session(tx, row)
        message_maps: tuple[Mapping[str, Any], ...] = (
            session.keys, session.shares, session.manifests, session.consistency, session.unmasks
        )  # fmt: skip
        for messages in message_maps:
            for client in messages:
                # Those of an ended round are erased.
                with suppress(MessageForgotten):
                    messages[client]


def store_phase(tx: Transaction, row: SessionRow, session: Session) -> None:
    """Write what `advance` froze."""
    touch(tx, row)
    deadlines = session.parameters.deadlines
    due = {"keys": deadlines.keys, "shares": deadlines.shares, "masked": deadlines.masked}
    row.phase, row.failure = session.phase, session.failure
    # From here on a client may have answered, whether or not its answer is here.
    row.opened = row.opened or session.phase in ("unmask", "summed")
    # After the masked vectors a session waits as long as it lives: clients may answer hours later.
    row.due_at = None if has_ended(row) else float(due.get(session.phase, session.parameters.expires))
    row.cohort, row.sharers, row.survivors = list(session.members), list(session.sharers), list(session.survivors)


def touch(tx: Transaction, row: SessionRow) -> None:
    """Take a new number for the rows of this transaction, before any row of the session is written."""
    key = ("touched", row.study_id, row.round)
    if key not in tx.shared:
        tx.shared[key] = True
        row.version += 1


def record_message(
    tx: Transaction, row: SessionRow, client: str, step: Step, body: str | None, octets_sha256: str | None = None
) -> None:
    """Record an admitted message. At the commit IntegrityError if the client has another message there.

    octets_sha256  of a manifest: the file that holds the octets of all its vectors
    """
    touch(tx, row)
    key = {"study_id": row.study_id, "round": row.round, "client": client, "step": step}
    tx.session.add(SessionMessageRow(**key, number=row.version, body=body, octets_sha256=octets_sha256))


def said_by(tx: Transaction, row: SessionRow, client: str, step: Step) -> SessionMessageRow | None:
    """Return the client's message at this step."""
    return tx.session.get(SessionMessageRow, (row.study_id, row.round, client, step))


def is_awaited(tx: Transaction, study_id: int, round_number: int, client: str) -> bool:
    """Return whether the session waits for the client's next message, once it has its update."""
    row = rows.find_session(tx, study_id, round_number)
    # An update in the clear arrives before the vectors.
    waited_for = {} if row is None else {phase: getattr(row, names) for phase, names in AWAITED.items()}
    if row is None or client not in waited_for.get(row.phase, ()):
        return False
    last = (tx.session.get(SessionMessageRow, (study_id, round_number, client, step)) for step in ("unmask", "left"))
    return not any(last)


def octets_of(tx: Transaction, row: SessionRow, clients: Sequence[str]) -> list[tuple[str, str]]:
    """Return (client, SHA-256) of the files with the survivors' masked vectors."""
    statement = select(SessionMessageRow.client, SessionMessageRow.octets_sha256).where(
        SessionMessageRow.study_id == row.study_id,
        SessionMessageRow.round == row.round,
        SessionMessageRow.step == "manifest",
    )
    digests = {client: sha256 for client, sha256 in tx.session.execute(statement) if sha256 is not None}
    return [(client, digests[client]) for client in clients]


def forget_shares(tx: Transaction, study_id: int, round_number: int) -> None:
    """Scrub the shares that could help to rebuild a secret. Their existence stays on record."""
    deletion = update(SessionMessageRow).where(
        SessionMessageRow.study_id == study_id,
        SessionMessageRow.round == round_number,
        SessionMessageRow.step.in_(("shares", "unmask")),
    )
    # Not row by row: rows of other writers go, too.
    tx.session.execute(deletion.values(body=None, written_by=tx.name).execution_options(synchronize_session=False))


def _bodies(tx: Transaction, row: SessionRow, *, after: int) -> dict[str, dict[str, _Body]]:
    statement = select(SessionMessageRow.step, SessionMessageRow.client, SessionMessageRow.body).where(
        SessionMessageRow.study_id == row.study_id,
        SessionMessageRow.round == row.round,
        SessionMessageRow.number > after,
    )
    bodies: dict[str, dict[str, _Body]] = {step: {} for step in get_args(Step)}
    for step, client, body in tx.session.execute(statement):
        if body is None and step in _LASTING_STEPS:
            raise RowBroken("secure_sum_messages lacks a message that is never erased")
        bodies[step][client] = body
    return bodies
