"""Shamir secret sharing of 32-byte secrets over the prime field p = 2^31 + 11, vectorised (Shamir 1979).

A secret is nine limbs of at most 31 bits, each shared by its own polynomial of degree threshold - 1. Holder i of n has
the share at the point i, i = 1 … n. A share is nine little-endian 32-bit words, 36 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from study_protocol.secure_sum.masking import keystream

# The least prime above 2^31: every 31-bit limb is a field element, every field element fits a 32-bit word.
PRIME = 2**31 + 11
SECRET_BYTES = 32
LIMBS = 9
SHARE_BYTES = 4 * LIMBS
_LIMB_BITS = 31
_P = np.uint64(PRIME)
_HALF, _LOW = np.uint64(16), np.uint64(0xFFFF)


class SharingError(ValueError):
    """Shares or their parameters are unusable. The text says which."""


def split(secrets: Sequence[bytes], holders: int, threshold: int, seed: bytes) -> list[bytes]:
    """Return shares for the holders 1 … `holders`: for each, the 36-byte shares of all secrets one after the other.

    Any `threshold` holders recover the secrets, and fewer learn no bit of them. The result is deterministic in `seed`,
    which must be 32 fresh uniform bytes: coefficients come from its keystream without modulo bias.

    Raises:
        SharingError: threshold outside 1 … holders, a secret or seed that is not 32 bytes.
    """
    if not 1 <= threshold <= holders < 2**16:
        raise SharingError(f"threshold {threshold} must lie between 1 and the number of holders {holders}")
    if len(seed) != SECRET_BYTES or any(len(secret) != SECRET_BYTES for secret in secrets):
        raise SharingError("secrets and the seed are 32 bytes each")
    constant = np.concatenate([_limbs(secret) for secret in secrets])
    coefficients = np.vstack([constant, _residues(seed, (threshold - 1) * constant.size).reshape(-1, constant.size)])
    rows = _product(_powers(holders, threshold), coefficients).astype("<u4")
    return [row.tobytes() for row in rows]


def weights_at(points: Sequence[int], at: int = 0) -> NDArray[np.uint64]:
    """Return Lagrange weights w with f(at) = Σ w_i f(points_i) mod p for every polynomial of degree < len(points).

    The secret is f(0). At another holder's point the weights give the share that this holder should have.

    Raises:
        SharingError: no points, a repeated point, or one outside 1 … 65535.
    """
    if not points or len(set(points)) != len(points) or not all(0 < point < 2**16 for point in points):
        raise SharingError("points must be distinct holders, counted from 1")
    x = np.array(points, dtype=np.uint64)
    difference = (x[None, :] + _P - x[:, None]) % _P
    # A point is left out of its own product.
    np.fill_diagonal(difference, 1)
    distance = (x[None, :] + _P - np.uint64(at)) % _P
    numerator = _row_products(np.where(np.eye(x.size, dtype=bool), np.uint64(1), distance))
    denominator = _row_products(difference)
    inverse = np.array([pow(int(d), -1, PRIME) for d in denominator], dtype=np.uint64)
    return numerator * inverse % _P


def interpolate(weights: NDArray[np.uint64], shares: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the field elements at the point of `weights`.

    shares  (points, words): one row for each point of `weights`, in their order, as `parse_share` reads it

    Returns:
        (words,)

    Raises:
        SharingError: another number of rows.
    """
    if shares.ndim != 2 or shares.shape[0] != weights.size:
        raise SharingError(f"{weights.size} shares of one length are needed")
    return _product(weights[None, :], shares)[0]


def combine(weights: NDArray[np.uint64], shares: NDArray[np.uint64]) -> list[bytes | None]:
    """Return the secrets behind `shares`.

    As for `interpolate`, each row holds the shares of several secrets side by side. None stands for a result that is no
    32-byte secret, which says that some share is wrong. A wrong share can also yield a wrong secret: check it against a
    commitment.

    Raises:
        SharingError: another number of rows.
    """
    limbs = interpolate(weights, shares).reshape(-1, LIMBS)
    # 256 bits are eight limbs of 31 and one of 8: anything above is no secret.
    wrong = (limbs[:, :-1] >> np.uint64(_LIMB_BITS)).any(axis=1) | (limbs[:, -1] >> np.uint64(8)).astype(np.bool_)
    return [None if bad else _secret(row) for row, bad in zip(limbs, wrong, strict=True)]


def parse_share(share: bytes) -> NDArray[np.uint64]:
    """Return the field elements of a share, or of several one after the other, shape (words,).

    Raises:
        SharingError: wrong length, or a word that is no field element.
    """
    if not share or len(share) % SHARE_BYTES:
        raise SharingError(f"a share is {SHARE_BYTES} bytes long")
    words = np.frombuffer(share, dtype="<u4").astype(np.uint64)
    if bool((words >= _P).any()):
        raise SharingError("a share holds a word that is no field element")
    return words


def _limbs(secret: bytes) -> NDArray[np.uint64]:
    number = int.from_bytes(secret, "little")
    return np.array([number >> (_LIMB_BITS * i) & (2**_LIMB_BITS - 1) for i in range(LIMBS)], dtype=np.uint64)


def _secret(limbs: NDArray[np.uint64]) -> bytes:
    return sum(int(limb) << (_LIMB_BITS * i) for i, limb in enumerate(limbs)).to_bytes(SECRET_BYTES, "little")


def _residues(seed: bytes, count: int) -> NDArray[np.uint64]:
    """Return `count` uniform field elements: 64-bit words at or above the last multiple of p are skipped."""
    limit = np.uint64(2**64 - 2**64 % PRIME)
    stream = keystream(seed)
    accepted = np.empty(0, dtype=np.uint64)
    # Skipped, not reduced: the top words would make some residues more likely.
    while accepted.size < count:
        words = np.frombuffer(stream.update(bytes(8 * (count - accepted.size))), dtype="<u8")
        accepted = np.concatenate([accepted, words[words < limit]])
    return accepted % _P


@lru_cache(maxsize=16)
def _powers(holders: int, threshold: int) -> NDArray[np.uint64]:
    points = np.arange(1, holders + 1, dtype=np.uint64)
    powers = np.ones((holders, threshold), dtype=np.uint64)
    for k in range(1, threshold):
        powers[:, k] = powers[:, k - 1] * points % _P
    # All callers receive the same cached array.
    powers.flags.writeable = False
    return powers


def _product(multiplicand: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return multiplicand @ right mod p. 16-bit halves keep 65,536 products of 48 bits within 64."""
    high, low = multiplicand @ (right >> _HALF), multiplicand @ (right & _LOW)
    return ((high % _P << _HALF) + low) % _P


def _row_products(matrix: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # Pairwise, reducing after each product: two field elements still fit 64 bits, three do not.
    while matrix.shape[1] > 1:
        if matrix.shape[1] % 2:
            matrix = np.hstack([matrix, np.ones((matrix.shape[0], 1), dtype=np.uint64)])
        matrix = matrix[:, ::2] * matrix[:, 1::2] % _P
    return matrix[:, 0]
