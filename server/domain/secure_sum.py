"""The coordinator's half of the secure sum as values: the messages that each step admits, and when a set freezes.

A session moves keys → shares → masked → consistency → unmask → summed, or ends as failed. Each move freezes a set: U1
(keys known), U2 (shares delivered), U3 (vectors complete). Time comes in as seconds. A message that is not accepted is
a value with a stable code. This module never stores, waits, or raises for a client's action.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import TypeAlias, TypeVar, cast

from server.domain.secure_sum_session import Declined, Failure, Phase, Repeated, Session, changed
from study_protocol.secure_sum import masking, shamir, transcript
from study_protocol.secure_sum.messages import (
    SLOT_BYTES,
    ConsistencyList,
    ConsistencyMessage,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SharesMessage,
    SurvivorList,
    UnmaskMessage,
    opened_shares,
)

M = TypeVar("M", KeysMessage, SharesMessage, Manifest, ConsistencyMessage, UnmaskMessage)
Message: TypeAlias = KeysMessage | SharesMessage | Manifest | ConsistencyMessage | UnmaskMessage
_ORDER: tuple[Phase, ...] = ("keys", "shares", "masked", "consistency", "unmask", "summed")
_STRANGER = Declined("unknown-client", "this client takes no part in this step of the session")


def admit_keys(session: Session, message: KeysMessage) -> Session | Repeated | Declined:
    """Step 0. Needs all keys so far: one bad key would make every other client refuse the cohort."""
    if message.client not in session.roster:
        return Declined("unknown-client", f"{message.client} is not on the roster of this study")
    refusal = _early_answer(session, "keys", session.keys, message)
    if refusal is not None:
        return refusal
    # t is for that many: with more, t could be reached twice, once with each answer (2t > n + c).
    if len(session.keys) >= session.parameters.clients:
        return Declined("phase-closed", "the planned number of clients has advertised keys")
    statement = transcript.keys_statement(session.ph, message.client, message.share_key, message.mask_key)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the keys are not signed for this session by this client")
    # Hospitals refuse a list in which a key repeats, which would cost all of them the session.
    pair = {message.share_key, message.mask_key}
    if len(pair) < 2 or not session.advertised_keys.isdisjoint(pair):
        return Declined("malformed", "share_key and mask_key are two keys that no other client uses")
    # Small order makes the shared secret a public constant (RFC 7748, 6.1).
    if not (masking.is_usable(message.share_key) and masking.is_usable(message.mask_key)):
        return Declined("malformed", "share_key and mask_key are X25519 keys that do not have small order")
    admitted = changed(session, keys=_with(session.keys, message))
    vars(admitted)["advertised_keys"] = session.advertised_keys | pair
    return admitted


def admit_shares(session: Session, message: SharesMessage) -> Session | Repeated | Declined:
    """Step 1."""
    refusal = _early_answer(session, "shares", session.shares, message)
    if refusal is not None:
        return refusal
    if message.client not in session.graph.places:
        return _STRANGER
    if len(message.slots) != SLOT_BYTES * (len(session.graph.holders(message.client)) - 1):
        return Declined("malformed", f"slots holds {SLOT_BYTES} bytes for each neighbour in the cohort")
    statement = transcript.shares_statement(session.h1, message.client, message.commitment, message.slots)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the shares are not signed over this list of keys")
    return changed(session, shares=_with(session.shares, message))


def admit_manifest(session: Session, message: Manifest) -> Session | Repeated | Declined:
    """Step 2. Asked before the octets come, and again when they are stored durably and are those of `message`."""
    refusal = _early_answer(session, "masked", session.manifests, message)
    if refusal is not None:
        return refusal
    if message.client not in session.sharer_set:
        return _STRANGER
    if set(message.digests) != {spec.name for spec in session.parameters.vectors}:
        return Declined("malformed", "digests names each vector of the session once")
    # Signed with the vector: a client that was shown other senders of shares is noticed here.
    statement = transcript.masked_statement(session.h1, session.sharers_hash, message.client, message.digests)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the vectors are not signed over this session's lists")
    return changed(session, manifests=_with(session.manifests, message))


def admit_consistency(session: Session, message: ConsistencyMessage) -> Session | Repeated | Declined:
    """Step 3. Signatures are still welcome while shares are being opened."""
    refusal = _early_answer(session, "consistency", session.consistency, message, until=("consistency", "unmask"))
    if refusal is not None:
        return refusal
    if message.client not in session.survivor_set:
        return _STRANGER
    statement = transcript.consistency_statement(session.h1, session.survivors_hash)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the signature is not over this session's survivor list")
    return changed(session, consistency=_with(session.consistency, message))


def admit_unmask(session: Session, message: UnmaskMessage) -> Session | Repeated | Declined:
    """Step 4: one share of each neighbour in U2 and of the sender, of the kind that U3 prescribes."""
    refusal = _early_answer(session, "unmask", session.unmasks, message)
    if refusal is not None:
        return refusal
    if message.client not in session.survivor_set:
        return _STRANGER
    peers = session.peers(message.client)
    if len(message.shares) != shamir.SHARE_BYTES * len(peers):
        return Declined("malformed", f"shares holds {shamir.SHARE_BYTES} bytes for each neighbour that shared secrets")
    # The kinds are signed: a share of the other one is no share of this survivor list.
    opened = opened_shares(peers, session.survivor_set, message.shares)
    statement = transcript.unmask_statement(session.h1, session.survivors_hash, message.client, opened)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the opened shares are not signed by this client for this session")
    try:
        # Now, while its sender can be told: later one malformed share would stop the sum of all.
        shamir.parse_share(message.shares)
    except shamir.SharingError as error:
        return Declined("malformed", f"shares: {error}")
    admitted = changed(session, unmasks=_with(session.unmasks, message))
    replied = session.replied.copy()
    replied[session.graph.holders_at(message.client)] += 1
    vars(admitted)["replied"] = replied
    return admitted


def leave(session: Session, client: str) -> Session:
    """Return the session without waiting for the client, which will send no more. Its earlier messages stay."""
    return changed(session, departed=session.departed | {client})


def advance(session: Session, now: int) -> Session:
    """Return the session after every move that is due at `now` (seconds since the epoch). Itself when none is.

    U1, U2 and U3 freeze when all that may still come have come, or at their deadlines. With too few the session fails.
    From then on it waits for t replies of every neighbourhood until it expires or too many have left. t is never
    lowered.
    """
    moved = _move(session, now)
    while moved is not session:
        session, moved = moved, _move(moved, now)
    return session


def key_list(session: Session) -> KeyList | Declined:
    """Return U1, once frozen."""
    if not session.cohort:
        return Declined("too-early", "keys are still being collected")
    return KeyList(entries=session.cohort)


def inbox(session: Session, client: str) -> Inbox | Declined:
    """Return U2 once it is frozen, and the shares of the neighbours in it for `client`, from their `shares`."""
    if not session.sharers:
        return Declined("too-early", "shares are still being collected")
    if client not in session.sharer_set:
        return Declined("unknown-client", f"{client} sent no shares in this session")
    slots = (_slot(session, sender, client) for sender in session.peers(client) if sender != client)
    return Inbox(sharers=session.sharers, slots=b"".join(slots))


def survivor_list(session: Session) -> SurvivorList | Declined:
    """Return U3 with the survivors' manifests, once frozen."""
    if not session.survivors:
        return Declined("too-early", "masked vectors are still being collected")
    return SurvivorList(entries=tuple(session.manifests[name] for name in session.survivors))


def consistency_list(session: Session) -> ConsistencyList | Declined:
    """Return the survivors' signatures, once there are enough of them."""
    if len(session.consistency) < session.parameters.quorum or not session.survivors:
        return Declined("too-early", "signatures over the survivor list are still being collected")
    return ConsistencyList(entries=tuple(session.consistency[name] for name in sorted(session.consistency)))


def is_openable(session: Session) -> bool:
    """Return whether every secret that the sum needs has t replies of its holders."""
    # Counted from reply to reply: this is asked after each.
    return bool((session.replied[session.shared] >= session.parameters.threshold).all())


def _slot(session: Session, sender: str, recipient: str) -> bytes:
    # A sender's slots are those of its neighbours, in their order: without itself.
    place = bisect_left(session.graph.holders(sender), recipient) - (sender < recipient)
    return session.shares[sender].slots[SLOT_BYTES * place : SLOT_BYTES * (place + 1)]


def _move(session: Session, now: int) -> Session:
    if session.phase in ("summed", "failed"):
        return session
    # Hospitals have erased their secrets by then: waiting on is in vain.
    if now > session.parameters.expires:
        return _failed(session, "expired")
    return _MOVES[session.phase](session, now)


def _freeze_cohort(session: Session, now: int) -> Session:
    parameters = session.parameters
    # A client that leaves before its keys is one fewer to wait for. One that has sent them is counted.
    absent = len(session.departed - session.keys.keys())
    if len(session.keys) + absent < parameters.clients and now < parameters.deadlines.keys:
        return session
    # Places and points of all members follow from this order.
    cohort = tuple(session.keys[name] for name in sorted(session.keys))
    if len(cohort) < parameters.min_clients:
        return _failed(session, "too-few-keys")
    return changed(session, phase="shares", cohort=cohort)


def _freeze_sharers(session: Session, now: int) -> Session:
    if _awaited(session, session.members, session.shares) and now < session.parameters.deadlines.shares:
        return session
    frozen = changed(session, phase="masked", sharers=tuple(name for name in session.members if name in session.shares))
    # If some neighbourhood is too thin already, no survivors can open the sum.
    if len(frozen.sharers) < session.parameters.min_clients or not _holds(frozen, frozen.sharers):
        return _failed(session, "too-few-shares")
    return frozen


def _freeze_survivors(session: Session, now: int) -> Session:
    if _awaited(session, session.sharers, session.manifests) and now < session.parameters.deadlines.masked:
        return session
    survivors = tuple(name for name in session.sharers if name in session.manifests)
    if len(survivors) < session.parameters.min_clients:
        return _failed(session, "too-few-survivors")
    if not _holds(session, survivors):
        return _failed(session, "too-sparse-survivors")
    return changed(session, phase="consistency", survivors=survivors)


def _begin_unmasking(session: Session, _: int) -> Session:
    # So many signatures over one list: no other list can have as many.
    if len(session.consistency) >= session.parameters.quorum:
        return changed(session, phase="unmask")
    departed = (session.departed & session.survivor_set) - session.consistency.keys()
    hopeful = len(session.survivors) - len(departed) >= session.parameters.quorum
    # A client that leaves without having confirmed opens no shares either.
    return _wait_without(departed, session) if hopeful else _failed(session, "too-few-replies")


def _wait_for_replies(session: Session, _: int) -> Session:
    return _wait_without((session.departed & session.survivor_set) - session.unmasks.keys(), session)


def _wait_without(departed: frozenset[str], session: Session) -> Session:
    hopeful = not departed or _can_open(session, session.survivor_set - departed)
    return session if hopeful else _failed(session, "too-few-replies")


_MOVES: Mapping[Phase, Callable[[Session, int], Session]] = {
    "keys": _freeze_cohort,
    "shares": _freeze_sharers,
    "masked": _freeze_survivors,
    "consistency": _begin_unmasking,
    "unmask": _wait_for_replies,
}


def _holds(session: Session, names: tuple[str, ...]) -> bool:
    """Return whether these can open the sum, and no colluders among them could take it apart."""
    selected = session.graph.mask(names)
    parameters = session.parameters
    opened = session.graph.can_open(session.shared, selected, parameters.threshold)
    return opened and session.graph.is_tied(selected, parameters.colluders)


def _can_open(session: Session, names: Collection[str]) -> bool:
    """Return whether at least t of these hold a share of every secret of U2."""
    return session.graph.can_open(session.shared, session.graph.mask(names), session.parameters.threshold)


def _failed(session: Session, failure: Failure) -> Session:
    return changed(session, phase="failed", failure=failure)


def _awaited(session: Session, names: tuple[str, ...], arrived: Mapping[str, object]) -> bool:
    # Counted before anybody is looked for: this is asked after every message.
    if len(arrived) + len(session.departed) < len(names):
        return True
    return any(name not in arrived and name not in session.departed for name in names)


def _with(rows: Mapping[str, M], message: M) -> Mapping[str, M]:
    entry = {message.client: message}
    if isinstance(rows, dict):
        return {**rows, **entry}
    if isinstance(rows, ChainMap):
        return ChainMap({**rows.maps[0], **entry}, *rows.maps[1:])
    # Stored rows are read when they are looked at: one more does not read the others.
    return ChainMap(entry, cast(MutableMapping[str, M], rows))


def _early_answer(
    session: Session,
    phase: Phase,
    rows: Mapping[str, Message],
    message: Message,
    until: tuple[Phase, ...] | None = None,
) -> Repeated | Declined | None:
    """Return the answer that needs no reading of the message: repeated, conflicting, outside its phase, or None."""
    stored = rows.get(message.client)
    # Before the phase: a lost answer may be asked for again long after the set froze.
    if stored is not None:
        return Repeated() if stored == message else Declined("conflict", "another message of this client is stored")
    if session.phase == "failed":
        return Declined("session-failed", f"the session ended: {session.failure}")
    if session.phase not in (until or (phase,)):
        early = _ORDER.index(session.phase) < _ORDER.index(phase)
        return Declined("too-early" if early else "phase-closed", f"the session is in its phase {session.phase}")
    return None


def _signed(session: Session, client: str, signature: bytes, statement: bytes) -> bool:
    return transcript.is_signed(session.roster[client], signature, statement)
