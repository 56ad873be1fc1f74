"""The coordinator's half of the secure sum as values: who may say what when, and when a set freezes.

A session moves keys → shares → masked → consistency → unmask → summed, or ends as failed. Each move freezes a
set: U1 (keys known), U2 (shares delivered), U3 (vectors complete). Time comes in as seconds; a message that is not
accepted is a value with a stable code; nothing here stores, waits or raises for what a client did.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from client_sdk.protocol.secure_sum import masking, shamir, transcript
from client_sdk.protocol.secure_sum.messages import (
    SLOT_BYTES,
    ConsistencyList,
    ConsistencyMessage,
    DeliveredShare,
    Inbox,
    KeyList,
    KeysMessage,
    Manifest,
    SessionParameters,
    SharesMessage,
    SurvivorList,
    UnmaskMessage,
)

Phase = Literal["keys", "shares", "masked", "consistency", "unmask", "summed", "failed"]
Inadmissible = Literal[
    "unknown-client", "bad-signature", "malformed", "conflict", "too-early", "phase-closed", "session-failed"
]
Code = Literal[Inadmissible, "too-few-replies", "wrong-shares", "canary-mismatch"]
Failure = Literal[
    "too-few-keys", "too-few-shares", "too-few-survivors", "too-few-replies", "expired", "canary-mismatch", "stopped"
]
M = TypeVar("M", KeysMessage, SharesMessage, Manifest, ConsistencyMessage, UnmaskMessage)
Message: TypeAlias = KeysMessage | SharesMessage | Manifest | ConsistencyMessage | UnmaskMessage
_HASHES = ("ph", "h1", "survivors_hash")
_ORDER: tuple[Phase, ...] = ("keys", "shares", "masked", "consistency", "unmask", "summed")


@dataclass(frozen=True)
class Declined:
    """Not accepted, and why. `code` is stable; `detail` tells the caller what to do and quotes nothing secret."""

    code: Code
    detail: str


@dataclass(frozen=True)
class Repeated:
    """The very same message is already there."""


@dataclass(frozen=True)
class Session:
    """All that the coordinator knows of one session.

    keys … unmasks    messages by client
    octets            (client, vector) pairs whose masked octets are stored durably
    left              clients that said they will not go on
    cohort, sharers, survivors   U1, U2, U3 once frozen, in the order of the names

    To admit keys all keys are needed, to admit any later message only the rows of its client (and, once U3 is
    frozen, the survivors' manifests); `advance` needs to know besides who said what, recovery everything.
    """

    parameters: SessionParameters
    roster: Mapping[str, Ed25519PublicKey]
    phase: Phase = "keys"
    keys: Mapping[str, KeysMessage] = field(default_factory=dict[str, KeysMessage])
    shares: Mapping[str, SharesMessage] = field(default_factory=dict[str, SharesMessage])
    manifests: Mapping[str, Manifest] = field(default_factory=dict[str, Manifest])
    octets: frozenset[tuple[str, str]] = frozenset()
    consistency: Mapping[str, ConsistencyMessage] = field(default_factory=dict[str, ConsistencyMessage])
    unmasks: Mapping[str, UnmaskMessage] = field(default_factory=dict[str, UnmaskMessage])
    left: frozenset[str] = frozenset()
    cohort: tuple[KeysMessage, ...] = ()
    sharers: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    failure: Failure | None = None

    @cached_property
    def ph(self) -> bytes:
        """H(parameters), 32 bytes."""
        return transcript.parameters_hash(self.parameters.to_bytes())

    @cached_property
    def h1(self) -> bytes:
        """H(U1), 32 bytes: the salt of every key of this session."""
        return transcript.cohort_hash(self.ph, ((e.client, e.share_key, e.mask_key) for e in self.cohort))

    @property
    def members(self) -> tuple[str, ...]:
        """U1 by name."""
        return tuple(entry.client for entry in self.cohort)

    @property
    def lost(self) -> tuple[str, ...]:
        """U2 without U3: masks of theirs are in the others' vectors."""
        return tuple(name for name in self.sharers if name not in self.survivors)

    @cached_property
    def survivors_hash(self) -> bytes:
        """H(U3), over the survivors' signed manifests."""
        h1 = self.h1
        said = transcript.sharers_hash(h1, self.sharers)
        statements = (
            (name, transcript.masked_statement(h1, said, name, self.manifests[name].digests)) for name in self.survivors
        )
        return transcript.survivors_hash(h1, statements)


def admit_keys(session: Session, message: KeysMessage) -> Session | Repeated | Declined:
    """Step 0. Needs all keys so far: one bad key would make every other client refuse the cohort."""
    if message.client not in session.roster:
        return Declined("unknown-client", f"{message.client} is not on the roster of this study")
    held = _held(session, "keys", session.keys, message)
    if held is not None:
        return held
    # t is for that many: with more, t could be reached twice, once with each answer (2t > n + c).
    if len(session.keys) >= session.parameters.clients:
        return Declined("phase-closed", "the planned number of clients has advertised keys")
    statement = transcript.keys_statement(session.ph, message.client, message.share_key, message.mask_key)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the keys are not signed for this session by this client")
    # Hospitals refuse a list in which a key repeats, which would cost everybody the session.
    taken = {key for entry in session.keys.values() for key in (entry.share_key, entry.mask_key)}
    if message.share_key == message.mask_key or not taken.isdisjoint((message.share_key, message.mask_key)):
        return Declined("malformed", "share_key and mask_key are two keys that nobody else uses")
    # Small order makes the shared secret a public constant (RFC 7748, 6.1).
    if not (masking.is_usable(message.share_key) and masking.is_usable(message.mask_key)):
        return Declined("malformed", "share_key and mask_key are X25519 keys that do not have small order")
    return _admitted(session, keys=_with(session.keys, message))


def admit_shares(session: Session, message: SharesMessage) -> Session | Repeated | Declined:
    """Step 1."""
    held = _held(session, "shares", session.shares, message, session.members)
    if held is not None:
        return held
    if len(message.slots) != SLOT_BYTES * (len(session.cohort) - 1):
        return Declined("malformed", f"slots holds {SLOT_BYTES} bytes for each other client of the cohort")
    statement = transcript.shares_statement(session.h1, message.client, message.commitment, message.slots)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the shares are not signed over this list of keys")
    return _admitted(session, shares=_with(session.shares, message))


def admit_manifest(session: Session, message: Manifest) -> Session | Repeated | Declined:
    """Step 2, first half: which octets will follow."""
    held = _held(session, "masked", session.manifests, message, session.sharers)
    if held is not None:
        return held
    if set(message.digests) != {spec.name for spec in session.parameters.vectors}:
        return Declined("malformed", "digests names each vector of the session once")
    h1 = session.h1
    # Signed with the vector: whoever was shown other senders of shares is noticed here.
    said = transcript.sharers_hash(h1, session.sharers)
    statement = transcript.masked_statement(h1, said, message.client, message.digests)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the vectors are not signed over this session's lists")
    return _admitted(session, manifests=_with(session.manifests, message))


def admit_octets(session: Session, client: str, vector: str, sha256: bytes, size: int) -> Session | Repeated | Declined:
    """Step 2, second half: octets of one vector, already stored durably, are the ones in the manifest."""
    spec, manifest = session.parameters.vector(vector), session.manifests.get(client)
    if session.phase == "failed":
        return Declined("session-failed", f"the session ended: {session.failure}")
    if spec is None:
        return Declined("malformed", f"the session has no vector {vector}")
    if manifest is None:
        if _ORDER.index(session.phase) > _ORDER.index("masked"):
            return Declined("phase-closed", f"the session is in its phase {session.phase}")
        return Declined("too-early", "send the manifest of all vectors before their octets")
    if size != spec.octets:
        return Declined("malformed", f"vector {vector} is {spec.octets} octets long")
    if sha256 != manifest.digests[vector]:
        return Declined("conflict", "the octets are not those of this client's signed manifest")
    # Before the phase: a repetition is welcome at any time.
    if (client, vector) in session.octets:
        return Repeated()
    if session.phase != "masked":
        return Declined("phase-closed", f"the session is in its phase {session.phase}")
    return _admitted(session, octets=session.octets | {(client, vector)})


def admit_consistency(session: Session, message: ConsistencyMessage) -> Session | Repeated | Declined:
    """Step 3. Signatures are still welcome while shares are being opened."""
    until: tuple[Phase, ...] = ("consistency", "unmask")
    held = _held(session, "consistency", session.consistency, message, session.survivors, until)
    if held is not None:
        return held
    statement = transcript.consistency_statement(session.h1, session.survivors_hash)
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the signature is not over this session's survivor list")
    return _admitted(session, consistency=_with(session.consistency, message))


def admit_unmask(session: Session, message: UnmaskMessage) -> Session | Repeated | Declined:
    """Step 4: exactly one share of each member of U2, of the kind that U3 prescribes."""
    held = _held(session, "unmask", session.unmasks, message, session.survivors)
    if held is not None:
        return held
    # Both kinds for one client would take every mask off its vector.
    due = [(name, "seed" if name in session.survivors else "mask-key") for name in session.sharers]
    if [(opened.peer, opened.kind) for opened in message.shares] != due:
        return Declined("malformed", "shares holds one share of each client, of the kind that the survivor list says")
    statement = transcript.unmask_statement(
        session.h1, session.survivors_hash, message.client, ((s.peer, s.kind, s.share) for s in message.shares)
    )
    if not _signed(session, message.client, message.signature, statement):
        return Declined("bad-signature", "the opened shares are not signed by this client for this session")
    try:
        for opened in message.shares:
            # Now, while its sender can be told: later one malformed share would stop the sum of all.
            shamir.parse_share(opened.share)
    except shamir.SharingError as error:
        return Declined("malformed", f"shares: {error}")
    return _admitted(session, unmasks=_with(session.unmasks, message))


def leave(session: Session, client: str) -> Session:
    """The client will send nothing more: nobody waits for it. What it sent stays."""
    return replace(session, left=session.left | {client})


def advance(session: Session, now: int) -> Session:
    """The session after every move that is due at `now` (seconds since the epoch); itself when none is.

    U1, U2 and U3 freeze when everybody who may still come has come, or at their deadlines; with too few the
    session fails. From then on it waits for t replies until it expires or too many have left; t is never lowered.
    """
    moved = _move(session, now)
    while moved is not session:
        session, moved = moved, _move(moved, now)
    return session


def key_list(session: Session) -> KeyList | Declined:
    """U1, once frozen."""
    if not session.cohort:
        return Declined("too-early", "keys are still being collected")
    return KeyList(entries=session.cohort)


def inbox(session: Session, client: str) -> Inbox | Declined:
    """The shares of the other members of U2 for `client`, once U2 is frozen."""
    if not session.sharers:
        return Declined("too-early", "shares are still being collected")
    if client not in session.sharers:
        return Declined("unknown-client", f"{client} sent no shares in this session")
    members = session.members
    # A sender's slots are those of the other members, in their order.
    place = members.index(client)
    return Inbox(
        entries=tuple(
            DeliveredShare(sender=sender, sealed=_slot(session.shares[sender].slots, place - (sender < client)))
            for sender in session.sharers
            if sender != client
        )
    )


def survivor_list(session: Session) -> SurvivorList | Declined:
    """U3 with the survivors' manifests, once frozen."""
    if not session.survivors:
        return Declined("too-early", "masked vectors are still being collected")
    return SurvivorList(entries=tuple(session.manifests[name] for name in session.survivors))


def consistency_list(session: Session) -> ConsistencyList | Declined:
    """The survivors' signatures, once there are t of them."""
    if len(session.consistency) < session.parameters.threshold or not session.survivors:
        return Declined("too-early", "signatures over the survivor list are still being collected")
    return ConsistencyList(entries=tuple(session.consistency[name] for name in sorted(session.consistency)))


def _slot(slots: bytes, place: int) -> bytes:
    return slots[SLOT_BYTES * place : SLOT_BYTES * (place + 1)]


def _move(session: Session, now: int) -> Session:
    parameters = session.parameters
    if session.phase in ("summed", "failed"):
        return session
    # Hospitals have erased their secrets by then: waiting on is in vain.
    if now > parameters.expires:
        return replace(session, phase="failed", failure="expired")
    # t to rebuild the secrets; min_survivors so that enough honest hospitals are in the sum.
    least = max(parameters.threshold, parameters.min_survivors)
    match session.phase:
        case "keys":
            # Whoever leaves before its keys is one fewer to wait for; whoever has sent them is counted.
            absent = len(session.left - session.keys.keys())
            if len(session.keys) + absent < parameters.clients and now < parameters.deadlines.keys:
                return session
            # Everybody's slot and share point follow from this order.
            cohort = tuple(session.keys[name] for name in sorted(session.keys))
            return _frozen(session, "shares", len(cohort) >= least, "too-few-keys", cohort=cohort)
        case "shares":
            if _awaited(session, session.members, session.shares) and now < parameters.deadlines.shares:
                return session
            sharers = tuple(name for name in session.members if name in session.shares)
            return _frozen(session, "masked", len(sharers) >= least, "too-few-shares", sharers=sharers)
        case "masked":
            complete = _complete(session)
            if _awaited(session, session.sharers, complete) and now < parameters.deadlines.masked:
                return session
            survivors = tuple(name for name in session.sharers if name in complete)
            return _frozen(session, "consistency", len(survivors) >= least, "too-few-survivors", survivors=survivors)
        case "consistency":
            # t signatures over one list: no other list can have as many.
            if len(session.consistency) >= parameters.threshold:
                return replace(session, phase="unmask")
            return _hopeful(session, session.consistency)
        case _:
            return _hopeful(session, session.unmasks)


def _frozen(session: Session, phase: Phase, enough: bool, failure: Failure, **members: Any) -> Session:
    if enough:
        return replace(session, phase=phase, **members)
    return replace(session, phase="failed", failure=failure)


def _hopeful(session: Session, replies: Mapping[str, object]) -> Session:
    """The session, failed if so many survivors have left that t replies can no longer come."""
    possible = sum(name in replies or name not in session.left for name in session.survivors)
    if possible >= session.parameters.threshold:
        return session
    return replace(session, phase="failed", failure="too-few-replies")


def _awaited(session: Session, names: tuple[str, ...], arrived: Mapping[str, object]) -> bool:
    return any(name not in arrived and name not in session.left for name in names)


def _complete(session: Session) -> dict[str, Manifest]:
    vectors = [spec.name for spec in session.parameters.vectors]
    return {
        name: manifest
        for name, manifest in session.manifests.items()
        if all((name, vector) in session.octets for vector in vectors)
    }


def _admitted(session: Session, **rows: Any) -> Session:
    """The session with one row more; no set has changed, so their hashes are not computed again."""
    moved = replace(session, **rows)
    vars(moved).update({name: value for name, value in vars(session).items() if name in _HASHES})
    return moved


def _with(rows: Mapping[str, M], message: M) -> Mapping[str, M]:
    if isinstance(rows, dict):
        return {**rows, message.client: message}
    # Stored rows are read when they are looked at: one more does not read the others.
    return ChainMap({message.client: message}, cast(MutableMapping[str, M], rows))


def _held(
    session: Session,
    phase: Phase,
    rows: Mapping[str, Message],
    message: Message,
    members: tuple[str, ...] | None = None,
    until: tuple[Phase, ...] | None = None,
) -> Repeated | Declined | None:
    """What can be said before reading the message: repeated, conflicting, outside its phase or set, or None."""
    known = rows.get(message.client)
    # Before the phase: a lost answer may be asked for again long after the set froze.
    if known is not None:
        return Repeated() if known == message else Declined("conflict", "another message of this client is stored")
    if session.phase == "failed":
        return Declined("session-failed", f"the session ended: {session.failure}")
    if session.phase not in (until or (phase,)):
        early = _ORDER.index(session.phase) < _ORDER.index(phase)
        return Declined("too-early" if early else "phase-closed", f"the session is in its phase {session.phase}")
    if members is not None and message.client not in members:
        return Declined("unknown-client", f"{message.client} takes no part in this step of the session")
    return None


def _signed(session: Session, client: str, signature: bytes, statement: bytes) -> bool:
    return transcript.is_signed(session.roster[client], signature, statement)
