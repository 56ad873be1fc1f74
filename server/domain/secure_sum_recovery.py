"""From t replies to the sums: rebuild secrets, take the masks off, check the canary.

Rebuilt secrets live only in the values returned here; they are never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice

import numpy as np

from client_sdk.protocol.secure_sum import masking, shamir, transcript
from client_sdk.protocol.secure_sum.messages import SumResult
from client_sdk.protocol.secure_sum.vectors import RingVector, VectorSpec, canary_holds
from server.domain.secure_sum import Declined, Session

# Subsets of replies tried for one secret when shares are wrong: bounds the work that they can cause.
_MAX_SUBSETS = 2_000


@dataclass(frozen=True)
class Recovered:
    """Seeds of the survivors, mask keys of the lost, and the clients whose shares were wrong, by name.

    A share can also be wrong because the owner of the secret dealt it so: suspects, not culprits.
    """

    seeds: Mapping[str, bytes] = field(repr=False)
    mask_keys: Mapping[str, bytes] = field(repr=False)
    suspects: tuple[str, ...]


@dataclass(frozen=True)
class MaskKeys:
    """The keys of the keystreams that lie on one vector's masked total, from the view of whoever takes them off."""

    add: tuple[bytes, ...] = field(repr=False)
    subtract: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class _Reply:
    client: str
    point: int
    shares: tuple[bytes, ...]


def recover(session: Session) -> Recovered | Declined:
    """Rebuild b of every survivor and the mask key of every lost client from any t replies.

    b is compared with its signed commitment and a mask key with the public key that was advertised, so a wrong
    share is noticed, its sender is named, and other replies are used.
    """
    threshold = session.parameters.threshold
    if len(session.unmasks) < threshold:
        return Declined("too-few-replies", f"{len(session.unmasks)} of {threshold} replies are here")
    replies = _replies(session)
    # One product for all secrets; each is looked for by itself only where a share is wrong.
    candidates = _combine_all(replies[:threshold])
    secrets: dict[str, bytes] = {}
    suspects: set[str] = set()
    for position, owner in enumerate(session.sharers):
        secret = candidates[position] if candidates else b""
        if not _is_secret_of(session, owner, secret):
            found = _search(session, owner, position, replies, suspects)
            if found is None:
                return Declined("wrong-shares", f"no {threshold} replies agree on a secret of {owner}: more are needed")
            secret, wrong = found
            suspects |= wrong
        secrets[owner] = secret
    return Recovered(
        seeds={name: secrets[name] for name in session.survivors},
        mask_keys={name: secrets[name] for name in session.lost},
        suspects=tuple(sorted(suspects)),
    )


def mask_keys_of(session: Session, recovered: Recovered, spec: VectorSpec) -> MaskKeys:
    """What to add to the masked total of a vector and what to subtract, so that the sum remains."""
    add: list[bytes] = []
    # Every survivor added its own; the lost have none in the sum.
    subtract = [masking.self_mask_key(seed, session.h1, spec.name) for seed in recovered.seeds.values()]
    public = {entry.client: entry.mask_key for entry in session.cohort}
    for lost, private in recovered.mask_keys.items():
        agreement = masking.Agreement(lost, private, session.h1)
        for name in session.survivors:
            # The earlier name added the pair's mask, the later one subtracted it.
            (subtract if name < lost else add).append(agreement.mask_key(name, public[name], spec.name))
    return MaskKeys(tuple(add), tuple(subtract))


def masked_total(spec: VectorSpec, vectors: Iterable[RingVector]) -> RingVector:
    """The sum in the ring of masked vectors, for example `numpy.memmap`s of stored octets; each, like the total,
    of shape (spec.words,). One vector is in memory.
    """
    total = masking.aligned(spec.words, spec.dtype)
    # `aligned` does not clear.
    total[:] = 0
    for vector in vectors:
        np.add(total, vector, out=total)
    return total


def unmask_total(session: Session, recovered: Recovered, spec: VectorSpec, total: RingVector) -> Declined | None:
    """Take the survivors' self masks and the lost clients' pair masks off `total`, in place, and check the canary.

    total  (spec.words,), the canary's words last

    On a mismatch `total` is worthless: the caller fails the session and keeps it for audit.
    """
    keys = mask_keys_of(session, recovered, spec)
    masking.apply_masks(total, add=keys.add, subtract=keys.subtract)
    if not canary_holds(spec, total, session.h1, session.survivors):
        return Declined("canary-mismatch", f"the masks on vector {spec.name} did not cancel: its sum is discarded")
    return None


def summed(session: Session, digests: Mapping[str, bytes], sign: Callable[[bytes], bytes]) -> tuple[Session, SumResult]:
    """The finished session and what is announced; `sign` is the coordinator's Ed25519 signature."""
    statement = transcript.result_statement(session.h1, session.survivors_hash, digests)
    result = SumResult(survivors=session.survivors, digests=dict(digests), signature=sign(statement))
    return replace(session, phase="summed"), result


def discarded(session: Session) -> Session:
    """The session after a canary mismatch."""
    return replace(session, phase="failed", failure="canary-mismatch")


def _replies(session: Session) -> list[_Reply]:
    # Over U1, as shares were dealt. From 1, because the secret lies at 0.
    points = {name: index for index, name in enumerate(session.members, start=1)}
    return [
        _Reply(name, points[name], tuple(opened.share for opened in session.unmasks[name].shares))
        for name in sorted(session.unmasks)
    ]


def _combine_all(replies: Sequence[_Reply]) -> list[bytes]:
    """All secrets at once, or nothing when some share is visibly wrong."""
    weights = shamir.weights_at([reply.point for reply in replies])
    try:
        return shamir.combine(weights, [b"".join(reply.shares) for reply in replies])
    except shamir.SharingError:
        return []


def _is_secret_of(session: Session, owner: str, secret: bytes) -> bool:
    if len(secret) != shamir.SECRET_BYTES:
        return False
    if owner in session.survivors:
        return transcript.seed_commitment(session.h1, owner, secret) == session.shares[owner].commitment
    return masking.public_key(secret) == session.keys[owner].mask_key


def _search(
    session: Session, owner: str, position: int, replies: Sequence[_Reply], suspects: set[str]
) -> tuple[bytes, set[str]] | None:
    """The secret from a subset that fits its commitment, and who sent shares off its polynomial."""
    # Whoever dealt one wrong share probably dealt more: its replies are tried last.
    trusted = sorted(replies, key=lambda reply: reply.client in suspects)
    for subset in islice(_subsets(trusted, session.parameters.threshold), _MAX_SUBSETS):
        points, shares = [reply.point for reply in subset], [reply.shares[position] for reply in subset]
        try:
            (secret,) = shamir.combine(shamir.weights_at(points), shares)
        except shamir.SharingError:
            continue
        if _is_secret_of(session, owner, secret):
            wrong = {reply.client for reply in replies if not _on_polynomial(reply, position, points, shares)}
            return secret, wrong
    return None


def _subsets(replies: Sequence[_Reply], size: int) -> Iterator[Sequence[_Reply]]:
    """Subsets of `size`, those that leave out few replies of the front first."""
    for excluded in range(len(replies) - size + 1):
        front = replies[: size + excluded]
        for out in combinations(range(len(front)), excluded):
            yield [reply for index, reply in enumerate(front) if index not in out]


def _on_polynomial(reply: _Reply, position: int, points: Sequence[int], shares: Sequence[bytes]) -> bool:
    expected = shamir.interpolate(shamir.weights_at(points, reply.point), shares)
    return bool(np.array_equal(expected, shamir.parse_share(reply.shares[position])))
