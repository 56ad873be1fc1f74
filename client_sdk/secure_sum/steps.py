"""The arithmetic of a hospital's steps: sealing and opening shares, masking. Pure, given secrets and randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from client_sdk.protocol.secure_sum import masking, shamir
from client_sdk.protocol.secure_sum import vectors as secure_sum_vectors
from client_sdk.protocol.secure_sum.fixed_point import EncodingError, RingVector
from client_sdk.protocol.secure_sum.messages import Inbox, KeysMessage, OpenedShare, SessionParameters
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.secure_sum.refusals import CohortRefused, SharesRefused, VectorsRefused
from client_sdk.secure_sum.store import Secrets


def seal_shares(
    client: str, secrets: Secrets, cohort: Sequence[KeysMessage], h1: bytes, threshold: int, seed: bytes
) -> tuple[bytes, bytes]:
    """The sealed slots for the others, in their order, and the share that stays here.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    shares = shamir.split((secrets.seed, secrets.mask_private), len(cohort), threshold, seed)
    agreement = masking.Agreement(client, secrets.share_private, h1)
    slots, kept = b"", b""
    for entry, share in zip(cohort, shares, strict=True):
        if entry.client == client:
            kept = share
            continue
        try:
            key = agreement.share_key(entry.client, entry.share_key)
        except masking.MaskingError as error:
            raise CohortRefused("unusable-key", str(error)) from error
        slots += masking.seal_share(key, h1, client, entry.client, share)
    return slots, kept


def open_inbox(
    client: str, secrets: Secrets, cohort: Sequence[KeysMessage], h1: bytes, inbox: Inbox
) -> dict[str, bytes]:
    """The shares of the other members of U2, by sender.

    Raises:
        SharesRefused: from outside the cohort, twice from one sender, not opening, or no field elements.
    """
    public = {entry.client: entry.share_key for entry in cohort if entry.client != client}
    agreement = masking.Agreement(client, secrets.share_private, h1)
    received: dict[str, bytes] = {}
    for entry in inbox.entries:
        if entry.sender not in public or entry.sender in received:
            raise SharesRefused("unexpected-share", f"a share from {entry.sender} is not expected here")
        key = agreement.share_key(entry.sender, public[entry.sender])
        try:
            share = masking.open_share(key, h1, entry.sender, client, entry.sealed)
            shamir.parse_share(share)
        except (masking.MaskingError, shamir.SharingError) as error:
            raise SharesRefused("malformed-share", f"the share from {entry.sender} is refused: {error}") from error
        received[entry.sender] = share
    return received


def mask_vector(
    client: str,
    secrets: Secrets,
    cohort: Sequence[KeysMessage],
    h1: bytes,
    sharers: Sequence[str],
    spec: VectorSpec,
    words: RingVector,
) -> RingVector:
    """A fresh buffer: words, canary and self mask, plus the masks with later names, minus those with earlier ones.

    Raises:
        CohortRefused: a public key with which no secret can be agreed.
    """
    public = {entry.client: entry.mask_key for entry in cohort}
    agreement = masking.Agreement(client, secrets.mask_private, h1)
    try:
        keys = {peer: agreement.mask_key(peer, public[peer], spec.name) for peer in sharers if peer != client}
    except masking.MaskingError as error:
        raise CohortRefused("unusable-key", str(error)) from error
    own = masking.self_mask_key(secrets.seed, h1, spec.name)
    buffer = secure_sum_vectors.canary_buffer(spec, h1, client)
    masking.apply_masks(
        buffer,
        head=words,
        add=[own, *(key for peer, key in keys.items() if client < peer)],
        subtract=[key for peer, key in keys.items() if peer < client],
    )
    return buffer


def opened_shares(secrets: Secrets, sharers: Sequence[str], survivors: set[str]) -> tuple[OpenedShare, ...]:
    """For each member of U2 one share: of its seed if it survived, of its mask key if it was lost."""
    opened: list[OpenedShare] = []
    for peer in sharers:
        both = secrets.shares[peer]
        if peer in survivors:
            opened.append(OpenedShare(peer=peer, kind="seed", share=both[: shamir.SHARE_BYTES]))
        else:
            opened.append(OpenedShare(peer=peer, kind="mask-key", share=both[shamir.SHARE_BYTES :]))
    return tuple(opened)


def digests_of_words(parameters: SessionParameters, words: Mapping[str, RingVector]) -> dict[str, bytes]:
    """SHA-256 of each vector before masking.

    Raises:
        VectorsRefused: a vector too many or too few, of the wrong size, or with a word beyond its cap.
    """
    if set(words) != {spec.name for spec in parameters.vectors}:
        raise VectorsRefused("other-vectors", "exactly the vectors of the session are sent, no fewer and no more")
    try:
        for spec in parameters.vectors:
            secure_sum_vectors.require_in_range(spec, words[spec.name])
    except EncodingError as error:
        raise VectorsRefused("out-of-range", str(error)) from error
    return {name: hashlib.sha256(np.ascontiguousarray(vector).data).digest() for name, vector in words.items()}
