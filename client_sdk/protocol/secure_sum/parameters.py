"""The vectors and parameters of a session from public numbers, so that both sides arrive at the same ones.

`capacity` is the most clients that any session of the study may have; caps are chosen for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from client_sdk.protocol.secure_sum.fixed_point import EncodingError, RingBits, largest_cap
from client_sdk.protocol.secure_sum.messages import Deadlines, SessionParameters, least_survivors, least_threshold
from client_sdk.protocol.secure_sum.vectors import ThresholdGrid, VectorSpec

_COST_SCALE_BITS = 32


def signed_vector(
    name: str, length: int, capacity: int, bound: float, *, ring_bits: RingBits = 32, most_scale_bits: int = 62
) -> VectorSpec:
    """Updates whose coordinates stay within ±bound: the finest scale with which `capacity` of them cannot wrap.

    Raises:
        EncodingError: a bound that is not finite and positive, or too large for the ring.
    """
    if not (math.isfinite(bound) and bound > 0):
        raise EncodingError("bound is a finite positive number")
    cap = largest_cap(capacity, ring_bits)
    # frexp: bound < 2^exponent, so bound · 2^scale < 2^(bits of cap - 1) <= cap.
    scale_bits = min(cap.bit_length() - 1 - math.frexp(bound)[1], most_scale_bits)
    if scale_bits < 0:
        raise EncodingError(f"bound {bound} does not fit the {ring_bits}-bit ring for {capacity} clients")
    return VectorSpec(name=name, encoding="signed", length=length, ring_bits=ring_bits, scale_bits=scale_bits, cap=cap)


def cost_vector(name: str, length: int, capacity: int) -> VectorSpec:
    """Costs in units of 2^-32, rounded up, with saturation words."""
    cap = largest_cap(capacity, 64)
    return VectorSpec(name=name, encoding="costs", length=length, ring_bits=64, scale_bits=_COST_SCALE_BITS, cap=cap)


def count_vector(name: str, length: int, capacity: int, *, ring_bits: RingBits = 32) -> VectorSpec:
    """Histograms and other small non-negative integers."""
    cap = largest_cap(capacity, ring_bits)
    return VectorSpec(name=name, encoding="counts", length=length, ring_bits=ring_bits, scale_bits=0, cap=cap)


def maximum_vector(name: str, length: int, grid: ThresholdGrid) -> VectorSpec:
    """Blinded thresholds: an upper bound on the maximum of each of `length` values."""
    return VectorSpec(name=name, encoding="thresholds", length=length, ring_bits=64, scale_bits=0, cap=0, grid=grid)


def plan_session(
    *,
    study: str,
    round_number: int,
    session: bytes,
    roster: str,
    model: str,
    clients: int,
    colluders: int,
    vectors: Sequence[VectorSpec],
    deadlines: Deadlines,
    expires: int,
) -> SessionParameters:
    """Parameters on the complete graph with the least threshold and the fewest survivors that are sound.

    `session` is 32 fresh random bytes. The caller still applies `require_sound`.
    """
    threshold = least_threshold(clients, colluders)
    return SessionParameters(
        study=study,
        round=round_number,
        session=session,
        roster=roster,
        model=model,
        clients=clients,
        colluders=colluders,
        threshold=threshold,
        neighbours=max(clients - 1, 1),
        min_survivors=least_survivors(clients, colluders, threshold),
        vectors=tuple(vectors),
        deadlines=deadlines,
        expires=expires,
    )
