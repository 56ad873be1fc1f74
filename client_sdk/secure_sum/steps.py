"""The computations of a hospital at each step of the secure sum. Pure, given secrets and randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.refusals import CohortRefused, SharesRefused, StateRefused, VectorsRefused
from client_sdk.secure_sum.store import RoundRecord, Secrets, SessionRecord
from study_protocol.secure_sum import masking, shamir, transcript
from study_protocol.secure_sum import vectors as secure_sum_vectors
from study_protocol.secure_sum.graph import Graph, graph_of
from study_protocol.secure_sum.messages import SLOT_BYTES, Inbox, KeysMessage, SessionParameters, opened_shares
from study_protocol.secure_sum.vectors import EncodingError, RingVector, VectorSpec
from study_protocol.wire.signing import public_key_of


@dataclass(frozen=True, repr=False)
class Party:
    """One hospital in one study. `roster` holds the members whose fingerprint `roster_fingerprint` was pinned."""

    client: str
    identity: Ed25519PrivateKey
    coordinator: Ed25519PublicKey
    roster: Mapping[str, Ed25519PublicKey]
    roster_fingerprint: str
    floors: Floors


@dataclass(frozen=True)
class Current:
    """The session as stored, with what follows from it."""

    record: RoundRecord
    session: SessionRecord

    @cached_property
    def parameters(self) -> SessionParameters:
        return SessionParameters.from_bytes(self.session.parameters)

    @cached_property
    def ph(self) -> bytes:
        """The hash of the parameters as they were signed."""
        return transcript.parameters_hash(self.session.parameters)

    @cached_property
    def h1(self) -> bytes:
        """The hash of ph and of U1: who has which masking keys."""
        members = ((entry.client, entry.share_key, entry.mask_key) for entry in self.session.cohort)
        return transcript.cohort_hash(self.ph, members)

    @cached_property
    def cohort(self) -> dict[str, KeysMessage]:
        """U1 by name."""
        return {entry.client: entry for entry in self.session.cohort}

    @cached_property
    def graph(self) -> Graph:
        """Return the graph of the members of U1 that exchange shares and masks."""
        return graph_of(self.h1, tuple(self.cohort), self.parameters.neighbours)

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """This client and its neighbours in U2, in the order of their names."""
        sharers = frozenset(self.session.sharers)
        return tuple(name for name in self.graph.holders(self.client) if name in sharers)

    @cached_property
    def u2(self) -> bytes:
        """The hash of h1 and of U2: whose shares arrived here."""
        return transcript.sharers_hash(self.h1, self.session.sharers)

    @property
    def client(self) -> str:
        return self.session.keys.client

    @property
    def secrets(self) -> Secrets:
        """Raises StateRefused once they are erased."""
        if self.session.secrets is None:
            raise StateRefused("session-over", "this session was unmasked, left or has expired: its secrets are erased")
        return self.session.secrets

    def identity(self, client: str) -> Ed25519PublicKey | None:
        """Return the key that a member's masking keys were checked with. A member that left the study since is still in
        the sum."""
        raw = self.session.identities.get(client)
        return None if raw is None else public_key_of(raw)

    @cached_property
    def u3(self) -> bytes:
        """The hash of h1 and of U3: who sent which vectors."""
        entries = self.session.survivors
        statements = ((entry.client, self.masked_statement(entry.client, entry.digests)) for entry in entries)
        return transcript.survivors_hash(self.h1, statements)

    @property
    def consistency_statement(self) -> bytes:
        """Return the statement that every survivor signs: that this U3 was shown to it."""
        return transcript.consistency_statement(self.h1, self.u3)

    def masked_statement(self, client: str, digests: Mapping[str, bytes]) -> bytes:
        """Return the statement that a client signs over its vectors. It names U2."""
        return transcript.masked_statement(self.h1, self.u2, client, digests)

    def having(self, **changes: object) -> Current:
        """The same with other fields of the session."""
        session = self.session.model_copy(update=changes)
        return Current(self.record.model_copy(update={"session": session}), session)


def seal_shares(current: Current, seed: bytes) -> tuple[bytes, bytes]:
    """The sealed slots for the neighbours, in their order, and the share that stays here.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    client, secrets, holders = current.client, current.secrets, current.graph.holders(current.client)
    shares = shamir.split((secrets.seed, secrets.mask_private), len(holders), current.parameters.threshold, seed)
    agreement = masking.KeyAgreement(client, secrets.share_private, current.h1)
    slots, kept_shares = b"", b""
    for holder, share in zip(holders, shares, strict=True):
        # Its own share counts among the t. It never leaves before it is opened.
        if holder == client:
            kept_shares = share
            continue
        try:
            key = agreement.share_key(holder, current.cohort[holder].share_key)
        except masking.MaskingError as error:
            raise CohortRefused("unusable-key", str(error)) from error
        slots += masking.seal_share(key, current.h1, client, holder, share)
    return slots, kept_shares


def open_inbox(current: Current, inbox: Inbox) -> dict[str, bytes]:
    """The shares of the neighbours in U2, by sender.

    Raises:
        SharesRefused: too few, from outside the cohort, in disorder, not opening, or no field elements.
    """
    client, h1 = current.client, current.h1
    senders = _senders(current, inbox)
    agreement = masking.KeyAgreement(client, current.secrets.share_private, h1)
    received: dict[str, bytes] = {}
    for place, sender in enumerate(senders):
        sealed = inbox.slots[SLOT_BYTES * place : SLOT_BYTES * (place + 1)]
        # Cannot fail: shares were sealed to these very keys.
        key = agreement.share_key(sender, current.cohort[sender].share_key)
        try:
            share = masking.open_share(key, h1, sender, client, sealed)
            shamir.parse_share(share)
        except (masking.MaskingError, shamir.SharingError) as error:
            raise SharesRefused("malformed-share", f"the share from {sender} is refused: {error}") from error
        received[sender] = share
    return received


def _senders(current: Current, inbox: Inbox) -> list[str]:
    """Return the neighbours whose shares are in the inbox, in their order. Raises SharesRefused."""
    sharers = frozenset(inbox.sharers)
    if not (sharers <= current.cohort.keys() and current.client in sharers and list(inbox.sharers) == sorted(sharers)):
        raise SharesRefused("unexpected-share", "the senders of shares are not members of the cohort, each once")
    if len(sharers) < current.parameters.min_clients:
        threshold = current.parameters.min_clients
        raise SharesRefused("few-shares", f"only {len(sharers)} clients shared their secrets, {threshold} must")
    senders = [name for name in current.graph.neighbours(current.client) if name in sharers]
    # The sender's own share is one of its t.
    if len(senders) + 1 < current.parameters.threshold:
        detail = f"only {len(senders)} neighbours shared their secrets, {current.parameters.threshold - 1} must"
        raise SharesRefused("few-shares", detail)
    if len(inbox.slots) != SLOT_BYTES * len(senders):
        raise SharesRefused("malformed-share", f"{len(inbox.slots)} octets are no shares of {len(senders)} neighbours")
    return senders


def digests_of_words(parameters: SessionParameters, words: Mapping[str, RingVector]) -> dict[str, bytes]:
    """SHA-256 of each vector before masking.

    Raises:
        VectorsRefused: a vector too many or too few, of the wrong size, or with a word beyond its cap.
    """
    if set(words) != {spec.name for spec in parameters.vectors}:
        raise VectorsRefused("other-vectors", "exactly the vectors of the session are sent, no fewer and no more")
    try:
        for spec in parameters.vectors:
            # A word beyond its cap may wrap the sum around, and a large total would read as a small one.
            secure_sum_vectors.require_in_range(spec, words[spec.name])
    except EncodingError as error:
        raise VectorsRefused("out-of-range", str(error)) from error
    return {name: hashlib.sha256(np.ascontiguousarray(vector).data).digest() for name, vector in words.items()}


def mask_vectors(current: Current, words: Mapping[str, RingVector]) -> dict[str, RingVector]:
    """Every vector in the order of the parameters, each in a fresh buffer: words, canary and self mask, plus the masks
    of neighbours in U2 with later names, minus those of earlier ones.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    # One for all vectors: it agrees on a secret with each neighbour once.
    agreement = masking.KeyAgreement(current.client, current.secrets.mask_private, current.h1)
    return {spec.name: _mask(current, agreement, spec, words[spec.name]) for spec in current.parameters.vectors}


def _mask(current: Current, agreement: masking.KeyAgreement, spec: VectorSpec, words: RingVector) -> RingVector:
    client = current.client
    try:
        keys = {
            peer: agreement.mask_key(peer, current.cohort[peer].mask_key, spec.name)
            for peer in current.peers
            if peer != client
        }
    except masking.MaskingError as error:
        raise CohortRefused("unusable-key", str(error)) from error
    self_key = masking.self_mask_key(current.secrets.seed, current.h1, spec.name)
    buffer = secure_sum_vectors.canary_buffer(spec, current.h1, client)
    masking.apply_masks(
        buffer,
        head=words,
        add=[self_key, *(key for peer, key in keys.items() if client < peer)],
        subtract=[key for peer, key in keys.items() if peer < client],
    )
    return buffer


def shares_to_open(current: Current) -> bytes:
    """36 bytes for each neighbour in U2 and for this client: of the seed of who survived, else of the mask key."""
    survivors = {entry.client for entry in current.session.survivors}
    opened = b""
    for peer in current.peers:
        # One slot holds both shares, the seed's first. Never both are opened: together they would unmask the peer.
        pair = current.secrets.shares[peer]
        opened += pair[: shamir.SHARE_BYTES] if peer in survivors else pair[shamir.SHARE_BYTES :]
    return opened


def unmask_statement(current: Current, shares: bytes) -> bytes:
    """Return the statement that this client signs over the shares that it opens."""
    survivors = {entry.client for entry in current.session.survivors}
    opened = opened_shares(current.peers, survivors, shares)
    return transcript.unmask_statement(current.h1, current.u3, current.client, opened)
