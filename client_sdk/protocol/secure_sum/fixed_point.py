"""Numbers as words of the rings Z_2^32 and Z_2^64, so that sums under masks are exact.

Signed values (updates) are rounded to nearest; costs are rounded up and carry a saturation word; counts are
whole. While each of n clients keeps its words within `largest_cap(n, bits)` no sum wraps, hence

    decode_signed(Σ encode_signed(x)) = Σ x   within n · 2^-(scale_bits + 1) in every coordinate,
    decode_costs(Σ encode_costs(x))  >= Σ x   and, before one rounding up to float64, below Σ x + n · 2^-scale_bits,
    decode_counts(Σ encode_counts(x)) = Σ x.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

RingBits: TypeAlias = Literal[32, 64]
RingVector: TypeAlias = NDArray[np.unsignedinteger[Any]]
Reals: TypeAlias = NDArray[np.floating[Any]]

# Blocks of this many values keep the temporaries of an encoding inside the cache.
_BLOCK = 1 << 16
_MAX_SCALE_BITS = 62


class EncodingError(ValueError):
    """A value cannot be written in the ring; nothing was encoded. The text names the argument."""


def ring_dtype(ring_bits: RingBits) -> np.dtype[np.unsignedinteger[Any]]:
    """Little-endian unsigned words: the layout on the wire and of the keystream."""
    if ring_bits not in (32, 64):
        raise EncodingError(f"ring_bits is 32 or 64, not {ring_bits}")
    return np.dtype("<u4") if ring_bits == 32 else np.dtype("<u8")


def largest_cap(clients: int, ring_bits: RingBits) -> int:
    """The largest word magnitude with which `clients` words sum to less than 2^(ring_bits - 1)."""
    if clients < 1:
        raise EncodingError(f"clients is at least 1, not {clients}")
    return (2 ** (8 * ring_dtype(ring_bits).itemsize - 1) - 1) // clients


def encode_signed(values: Reals, *, ring_bits: RingBits, scale_bits: int, cap: int) -> RingVector:
    """Nearest integers to values · 2^scale_bits, in two's complement; shape (d,) in and out.

    Raises:
        EncodingError: NaN, an infinity, a magnitude above `cap` ring units, or an array that is not (d,) floats.
    """
    dtype, scale = ring_dtype(ring_bits), _scale(scale_bits)
    _require_reals(values)
    signed = np.dtype("<i4") if ring_bits == 32 else np.dtype("<i8")
    words = np.empty(values.shape, dtype)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK].astype(np.float64)
        np.rint(np.ldexp(block, scale, out=block), out=block)
        low, high = float(block.min()), float(block.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise EncodingError("values holds NaN, an infinity or a number beyond float64 once scaled")
        if int(high) > cap or -int(low) > cap:
            raise EncodingError(f"values exceeds the range ±{cap} · 2^-{scale}: clip it or choose a smaller scale")
        words[start : start + _BLOCK] = block.astype(signed).view(dtype)
    return words


def decode_signed(total: RingVector, *, scale_bits: int) -> NDArray[np.float64]:
    """Summed words back to reals; exact in the 32-bit ring, nearest float64 in the 64-bit ring."""
    signed = total.view(np.dtype(f"<i{total.dtype.itemsize}"))
    return np.ldexp(signed.astype(np.float64), -_scale(scale_bits))


def encode_costs(values: Reals, *, scale_bits: int, cap: int) -> tuple[RingVector, RingVector]:
    """Costs rounded up to multiples of 2^-scale_bits in Z_2^64, and 0/1 saturation words; both of shape (d,).

    Multiplying by a power of two and the ceiling are exact in float64, and a positive cost never becomes 0.
    An infinite cost, or one above `cap` units, is written as `cap` with saturation 1.

    Raises:
        EncodingError: NaN, a negative cost, -0.0, or an array that is not (d,) floats.
    """
    scale = _scale(scale_bits)
    _require_reals(values)
    if np.isnan(values).any():
        raise EncodingError("values holds NaN: a cost is a number or infinity")
    if np.signbit(values).any():
        raise EncodingError("values holds a negative number or -0.0: a cost is never below zero")
    with np.errstate(over="ignore"):
        units = np.ceil(np.ldexp(values.astype(np.float64), scale))
    saturated = units > _float_at_most(cap)
    words = np.where(saturated, 0.0, units).astype("<u8")
    words[saturated] = cap
    return words, saturated.astype("<u8")


def decode_costs(total: RingVector, saturated: RingVector, *, scale_bits: int) -> NDArray[np.float64]:
    """Summed costs as float64, rounded up; infinity wherever anybody saturated."""
    if bool((total >> np.uint64(63)).any()):
        raise EncodingError("total lies above 2^63: some client wrote more than its cap")
    nearest = total.astype(np.float64)
    short = nearest.astype(np.uint64) < total
    upward = np.where(short, np.nextafter(nearest, np.inf), nearest)
    return np.where(saturated != 0, np.inf, np.ldexp(upward, -_scale(scale_bits)))


def encode_counts(counts: NDArray[np.integer[Any]], *, ring_bits: RingBits, cap: int) -> RingVector:
    """Counts of 0 … cap as words, shape (d,).

    Raises:
        EncodingError: a negative count, a count above `cap`, or an array that is not (d,) integers.
    """
    dtype = ring_dtype(ring_bits)
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise EncodingError("counts is a one-dimensional array of integers")
    if counts.size and (int(counts.min()) < 0 or int(counts.max()) > cap):
        raise EncodingError(f"counts must lie in 0 … {cap}")
    return counts.astype(dtype)


def decode_counts(total: RingVector) -> NDArray[np.int64]:
    """Summed counts.

    Raises:
        EncodingError: a sum in the upper half of the ring, which only a client beyond its cap can cause.
    """
    half = total.dtype.type(8 * total.dtype.itemsize - 1)
    if bool((total >> half).any()):
        raise EncodingError("total lies in the upper half of the ring: some client wrote more than its cap")
    return total.astype(np.int64)


def _scale(scale_bits: int) -> int:
    if not 0 <= scale_bits <= _MAX_SCALE_BITS:
        raise EncodingError(f"scale_bits lies in 0 … {_MAX_SCALE_BITS}, not {scale_bits}")
    return scale_bits


def _require_reals(values: Reals) -> None:
    if values.ndim != 1 or values.dtype.kind != "f":
        raise EncodingError("values is a one-dimensional array of floats")


def _float_at_most(cap: int) -> float:
    nearest = float(cap)
    return nearest if int(nearest) <= cap else math.nextafter(nearest, 0.0)
