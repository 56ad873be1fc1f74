"""Recovery of mask keys from t replies: rebuild secrets, and name the senders of wrong shares.

Rebuilt secrets live only in the values returned here, and are never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from server.domain.secure_sum import is_openable
from server.domain.secure_sum_session import Declined, Session, changed
from study_protocol.secure_sum import masking, shamir, transcript
from study_protocol.secure_sum.messages import SumResult
from study_protocol.secure_sum.vectors import VectorSpec

# Subsets of replies tried for one secret when shares are wrong: bounds the work that they can cause.
_MAX_SUBSETS = 2_000


@dataclass(frozen=True)
class Recovered:
    """Seeds of the survivors, mask keys of the lost, and the clients whose shares were wrong, by name.

    A share can also be wrong because the owner of the secret dealt it so: suspects, not culprits.
    """

    h1: bytes
    seeds: Mapping[str, bytes] = field(repr=False)
    mask_keys: Mapping[str, bytes] = field(repr=False)
    suspects: tuple[str, ...]

    @cached_property
    def agreements(self) -> dict[str, masking.KeyAgreement]:
        """Return the key agreements of each lost client's private mask key."""
        return {name: masking.KeyAgreement(name, private, self.h1) for name, private in self.mask_keys.items()}


@dataclass(frozen=True)
class MaskKeys:
    """The keys of the keystreams that lie on one vector's masked total, signed as the coordinator removes them."""

    add: tuple[bytes, ...] = field(repr=False)
    subtract: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True)
class _Holder:
    """One reply's share of one owner's secret. `row` is the share's in `_Replies.words`, `point` the holder's."""

    client: str
    point: int
    row: int


@dataclass(frozen=True)
class _Replies:
    """All shares that were opened, as one array.

    words   (shares, 9): replies in the order of the names, each with its shares in their order
    rows    [holder, owner] by place in U1: the share's row in `words`, or -1 without one
    points  [holder, owner]: the point of the holder's share on the owner's polynomial, counted from 1
    """

    members: tuple[str, ...]
    words: NDArray[np.uint64] = field(repr=False)
    rows: NDArray[np.intp] = field(repr=False)
    points: NDArray[np.intp] = field(repr=False)

    @classmethod
    def of(cls, session: Session) -> _Replies:
        graph = session.graph
        # Members are in the order of their names, and so are the replies and the shares in each.
        opened = b"".join(session.unmasks[name].shares for name in sorted(session.unmasks))
        replied = graph.adjacency & graph.mask(session.unmasks)[:, None] & graph.mask(session.sharers)[None, :]
        rows = np.where(replied, np.cumsum(replied, dtype=np.intp).reshape(replied.shape) - 1, -1)
        points = np.cumsum(graph.adjacency, axis=0, dtype=np.intp)
        return cls(session.members, shamir.parse_share(opened).reshape(-1, shamir.LIMBS), rows, points)

    def holders(self, owner: int) -> list[_Holder]:
        """Return the holders whose shares of the owner's secret are here, in the order of the names."""
        return [
            _Holder(self.members[place], int(self.points[place, owner]), int(self.rows[place, owner]))
            for place in np.flatnonzero(self.rows[:, owner] >= 0)
        ]

    def share(self, holder: _Holder) -> NDArray[np.uint64]:
        return self.words[holder.row]


def recover(session: Session) -> Recovered | Declined:
    """Rebuild b of every survivor and the mask key of every lost client, each from any t replies of its holders.

    b is compared with its signed commitment, and a mask key with the public key that was advertised. A wrong share is
    therefore noticed, its sender is named, and other replies are used.
    """
    threshold = session.parameters.threshold
    if not is_openable(session):
        message = f"{len(session.unmasks)} replies are here, and {threshold} of every neighbourhood are needed"
        return Declined("too-few-replies", message)
    replies = _Replies.of(session)
    candidates = _candidates(session, replies)
    secrets: dict[str, bytes] = {}
    suspects: set[str] = set()
    for owner in session.sharers:
        secret = candidates[owner]
        # Each is looked for by itself only where a share is wrong.
        if secret is None or not _is_secret_of(session, owner, secret):
            recovered = _search(session, owner, replies, suspects)
            if recovered is None:
                return Declined("wrong-shares", f"no {threshold} replies agree on a secret of {owner}: more are needed")
            secret, wrong = recovered
            suspects |= wrong
        secrets[owner] = secret
    return Recovered(
        h1=session.h1,
        seeds={name: secrets[name] for name in session.survivors},
        mask_keys={name: secrets[name] for name in session.lost},
        suspects=tuple(sorted(suspects)),
    )


def mask_keys_of(session: Session, recovered: Recovered, spec: VectorSpec) -> MaskKeys:
    """Return the keys to add to the masked total of a vector and those to subtract, so that the sum remains."""
    add: list[bytes] = []
    # Every survivor added its own. The lost have none in the sum.
    subtract = [masking.self_mask_key(seed, session.h1, spec.name) for seed in recovered.seeds.values()]
    for lost, agreement in recovered.agreements.items():
        # Only its neighbours masked with it.
        for name in session.peers(lost):
            if name in session.survivor_set:
                # The earlier name added the pair's mask, the later one subtracted it.
                key = agreement.mask_key(name, session.keys[name].mask_key, spec.name)
                (subtract if name < lost else add).append(key)
    return MaskKeys(tuple(add), tuple(subtract))


def summed(session: Session, digests: Mapping[str, bytes], sign: Callable[[bytes], bytes]) -> tuple[Session, SumResult]:
    """Return the finished session and its announcement. `sign` is the coordinator's Ed25519 signature."""
    statement = transcript.result_statement(session.h1, session.survivors_hash, digests)
    result = SumResult(survivors=session.survivors, digests=dict(digests), signature=sign(statement))
    return changed(session, phase="summed"), result


def discarded(session: Session) -> Session:
    """Return the session after a canary mismatch."""
    return changed(session, phase="failed", failure="canary-mismatch")


def _candidates(session: Session, replies: _Replies) -> dict[str, bytes | None]:
    """Return each secret of U2 from the first t of its holders that replied: right if these have sent right shares.

    Owners whose holders stand at the same points share Lagrange's weights, and one product.
    """
    threshold, places = session.parameters.threshold, session.graph.places
    owners_by_points: dict[tuple[int, ...], list[tuple[str, NDArray[np.intp]]]] = {}
    for owner in session.sharers:
        column = replies.rows[:, places[owner]]
        first = np.flatnonzero(column >= 0)[:threshold]
        points = tuple(replies.points[first, places[owner]].tolist())
        owners_by_points.setdefault(points, []).append((owner, column[first]))
    candidates: dict[str, bytes | None] = {}
    for points, owners in owners_by_points.items():
        rows = np.stack([rows for _, rows in owners], axis=1)
        words = replies.words[rows].reshape(len(points), -1)
        secrets = shamir.combine(shamir.weights_at(points), words)
        candidates.update(zip((owner for owner, _ in owners), secrets, strict=True))
    return candidates


def _is_secret_of(session: Session, owner: str, secret: bytes) -> bool:
    if owner in session.survivor_set:
        return transcript.seed_commitment(session.h1, owner, secret) == session.shares[owner].commitment
    return masking.public_key(secret) == session.keys[owner].mask_key


def _search(session: Session, owner: str, replies: _Replies, suspects: set[str]) -> tuple[bytes, set[str]] | None:
    """Return the secret from a subset that fits its commitment, and the senders of shares off its polynomial."""
    holders = replies.holders(session.graph.places[owner])
    # A client that dealt one wrong share probably dealt more: its replies are tried last.
    trusted = sorted(holders, key=lambda holder: holder.client in suspects)
    for subset in islice(_subsets(trusted, session.parameters.threshold), _MAX_SUBSETS):
        points, shares = [holder.point for holder in subset], np.stack([replies.share(holder) for holder in subset])
        (secret,) = shamir.combine(shamir.weights_at(points), shares)
        if secret is not None and _is_secret_of(session, owner, secret):
            wrong = {h.client for h in holders if not _is_on_polynomial(h.point, replies.share(h), points, shares)}
            return secret, wrong
    return None


def _subsets(holders: Sequence[_Holder], size: int) -> Iterator[Sequence[_Holder]]:
    """Yield subsets of `size`, those that leave out few of the front first."""
    for excluded in range(len(holders) - size + 1):
        front = holders[: size + excluded]
        for out in combinations(range(len(front)), excluded):
            yield [holder for index, holder in enumerate(front) if index not in out]


def _is_on_polynomial(point: int, share: NDArray[np.uint64], points: Sequence[int], shares: NDArray[np.uint64]) -> bool:
    return bool(np.array_equal(shamir.interpolate(shamir.weights_at(points, point), shares), share))
