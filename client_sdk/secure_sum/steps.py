"""What a hospital computes at each step of the secure sum. Pure, given secrets and randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from client_sdk.guard.policy import Floors
from client_sdk.protocol.secure_sum import masking, shamir, transcript
from client_sdk.protocol.secure_sum import vectors as secure_sum_vectors
from client_sdk.protocol.secure_sum.messages import (
    Inbox,
    OpenedShare,
    SessionParameters,
)
from client_sdk.protocol.secure_sum.vectors import EncodingError, RingVector, VectorSpec
from client_sdk.protocol.wire.signing import public_key_of
from client_sdk.secure_sum.refusals import (
    CohortRefused,
    SharesRefused,
    StateRefused,
    VectorsRefused,
)
from client_sdk.secure_sum.store import RoundRecord, Secrets, SessionRecord


@dataclass(frozen=True)
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

    @property
    def least(self) -> int:
        """Fewest clients that must go on for the session to end in a sum."""
        return max(self.parameters.threshold, self.parameters.min_survivors)

    def identity(self, client: str) -> Ed25519PublicKey | None:
        """What a member's masking keys were checked with; whoever left the study since is still in the sum."""
        raw = self.session.identities.get(client)
        return None if raw is None else public_key_of(raw)

    @cached_property
    def u3(self) -> bytes:
        """The hash of h1 and of U3: who sent which vectors."""
        entries = self.session.survivors
        said = ((entry.client, self.masked_statement(entry.client, entry.digests)) for entry in entries)
        return transcript.survivors_hash(self.h1, said)

    @property
    def consistency_statement(self) -> bytes:
        """What every survivor signs: that this U3 was shown to it."""
        return transcript.consistency_statement(self.h1, self.u3)

    def masked_statement(self, client: str, digests: Mapping[str, bytes]) -> bytes:
        """What a client signs over its vectors: it names U2."""
        return transcript.masked_statement(self.h1, self.u2, client, digests)

    def having(self, **changes: object) -> Current:
        """The same with other fields of the session."""
        session = self.session.model_copy(update=changes)
        return Current(self.record.model_copy(update={"session": session}), session)


def seal_shares(current: Current, seed: bytes) -> tuple[bytes, bytes]:
    """The sealed slots for the others, in their order, and the share that stays here.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    client, secrets, cohort = current.client, current.secrets, current.session.cohort
    shares = shamir.split((secrets.seed, secrets.mask_private), len(cohort), current.parameters.threshold, seed)
    agreement = masking.Agreement(client, secrets.share_private, current.h1)
    slots, kept = b"", b""
    for entry, share in zip(cohort, shares, strict=True):
        # Its own share counts among the t; it never leaves before it is opened.
        if entry.client == client:
            kept = share
            continue
        try:
            key = agreement.share_key(entry.client, entry.share_key)
        except masking.MaskingError as error:
            raise CohortRefused("unusable-key", str(error)) from error
        slots += masking.seal_share(key, current.h1, client, entry.client, share)
    return slots, kept


def open_inbox(current: Current, inbox: Inbox) -> dict[str, bytes]:
    """The shares of the other members of U2, by sender.

    Raises:
        SharesRefused: too few, from outside the cohort, twice from one sender, not opening, or no field elements.
    """
    client, h1 = current.client, current.h1
    public = {entry.client: entry.share_key for entry in current.session.cohort if entry.client != client}
    agreement = masking.Agreement(client, current.secrets.share_private, h1)
    received: dict[str, bytes] = {}
    for entry in inbox.entries:
        if entry.sender not in public or entry.sender in received:
            raise SharesRefused("unexpected-share", f"a share from {entry.sender} is not expected here")
        # Cannot fail: shares were sealed to these very keys.
        key = agreement.share_key(entry.sender, public[entry.sender])
        try:
            share = masking.open_share(key, h1, entry.sender, client, entry.sealed)
            shamir.parse_share(share)
        except (masking.MaskingError, shamir.SharingError) as error:
            raise SharesRefused("malformed-share", f"the share from {entry.sender} is refused: {error}") from error
        received[entry.sender] = share
    if len(received) + 1 < current.least:
        found = len(received) + 1
        raise SharesRefused("few-shares", f"only {found} clients shared their secrets, {current.least} must")
    return received


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


def mask_vector(current: Current, spec: VectorSpec, words: RingVector) -> RingVector:
    """A fresh buffer: words, canary and self mask, plus the masks with later names, minus those with earlier ones.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    client, secrets = current.client, current.secrets
    public = {entry.client: entry.mask_key for entry in current.session.cohort}
    agreement = masking.Agreement(client, secrets.mask_private, current.h1)
    try:
        keys = {
            peer: agreement.mask_key(peer, public[peer], spec.name)
            for peer in current.session.sharers
            if peer != client
        }
    except masking.MaskingError as error:
        raise CohortRefused("unusable-key", str(error)) from error
    own = masking.self_mask_key(secrets.seed, current.h1, spec.name)
    buffer = secure_sum_vectors.canary_buffer(spec, current.h1, client)
    masking.apply_masks(
        buffer,
        head=words,
        add=[own, *(key for peer, key in keys.items() if client < peer)],
        subtract=[key for peer, key in keys.items() if peer < client],
    )
    return buffer


def opened_shares(current: Current) -> tuple[OpenedShare, ...]:
    """For each member of U2 one share: of its seed if it survived, of its mask key if it was lost."""
    survivors = {entry.client for entry in current.session.survivors}
    opened: list[OpenedShare] = []
    for peer in current.session.sharers:
        # One slot holds both shares, the seed's first. Never both are opened: together they would unmask the peer.
        both = current.secrets.shares[peer]
        if peer in survivors:
            opened.append(OpenedShare(peer=peer, kind="seed", share=both[: shamir.SHARE_BYTES]))
        else:
            opened.append(OpenedShare(peer=peer, kind="mask-key", share=both[shamir.SHARE_BYTES :]))
    return tuple(opened)
