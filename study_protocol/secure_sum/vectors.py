"""The vectors of a secure sum: numbers as words of the rings Z_2^32 and Z_2^64, so that sums under masks are exact.

A vector has these words, in order: the data, for costs as many saturation words, a 1 and 64 bits. The sum of the 1
counts the survivors. The coordinator knows the 64 bits, and their sum shows whether every mask cancelled.

Signed values (updates) are rounded to nearest. Costs are rounded up and carry a saturation word. Counts are whole.
While each of n clients keeps its words within `largest_cap(n, bits)` no sum wraps, hence

    decode_signed(Σ encode_signed(x)) = Σ x   within n · 2^-(scale_bits + 1) in every coordinate,
    decode_costs(Σ encode_costs(x))  >= Σ x   and, before one rounding up to float64, below Σ x + n · 2^-scale_bits,
    decode_counts(Σ encode_counts(x)) = Σ x.

A maximum is bounded by blinded thresholds on a public grid g_1 < … < g_K. A client writes a fresh uniform word where
its value exceeds g_k and 0 elsewhere. The sum over clients is 0 where no value exceeds g_k, and otherwise a uniform
word of Z_2^64. So only one bit per threshold shows: whether some value exceeds it. A non-zero sum is 0 by chance with
probability 2^-64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from study_protocol.secure_sum.transcript import canary_word
from study_protocol.wire.values import Message, Positive

RingBits: TypeAlias = Literal[32, 64]
RingVector: TypeAlias = NDArray[np.unsignedinteger[Any]]
VectorName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
Values: TypeAlias = NDArray[np.float64] | NDArray[np.float32] | NDArray[np.int64]
# Blocks of this many values keep the temporaries of an encoding inside the cache.
_BLOCK = 1 << 16
# n clients overshoot by n · 2^-32 nats at most, and have 2^31 nats of room between them.
_COST_SCALE_BITS = 32


class EncodingError(ValueError):
    """A value cannot be written in the ring, and no word was encoded. The text names the argument."""


class ThresholdGrid(Message):
    """Public thresholds of a blinded maximum: `count` of them from `low` to `high` in geometric steps."""

    low: Positive
    high: Positive
    count: int = Field(ge=2, le=65_536)

    @property
    def thresholds(self) -> tuple[float, ...]:
        """g_1 < … < g_K. EncodingError: float64 cannot keep them apart."""
        return geometric_grid(self.low, self.high, self.count)


class VectorSpec(Message):
    """One vector of a session, as part of the signed parameters.

    encoding    signed: updates. costs: rounded up. counts: histograms. thresholds: a maximum
    length      number of values, before saturation words or thresholds multiply them
    scale_bits  one ring unit is 2^-scale_bits (signed, costs)
    cap         the largest magnitude, in ring units, that one client may write (0 for thresholds)
    """

    name: VectorName
    encoding: Literal["signed", "costs", "counts", "thresholds"]
    length: int = Field(ge=1, le=2**31)
    ring_bits: RingBits
    scale_bits: int = Field(ge=0, le=62)
    cap: int = Field(ge=0, lt=2**63)
    grid: ThresholdGrid | None = None

    @property
    def data_words(self) -> int:
        """Words before the canary."""
        if self.encoding == "costs":
            return 2 * self.length
        return self.length * self.grid.count if self.grid is not None else self.length

    @property
    def words(self) -> int:
        """Words on the wire, canary included."""
        return self.data_words + 1 + 64 // self.ring_bits

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        return ring_dtype(self.ring_bits)

    @property
    def octets(self) -> int:
        """Bytes on the wire."""
        return self.words * self.dtype.itemsize

    def fault(self, clients: int) -> str | None:
        """Return why a sum over `clients` clients could wrap or be misread, or None."""
        if (self.encoding == "thresholds") != (self.grid is not None):
            return "a grid belongs to thresholds only"
        if self.encoding in ("costs", "thresholds") and self.ring_bits != 64:
            return f"{self.encoding} need the 64-bit ring"
        if self.encoding in ("counts", "thresholds") and self.scale_bits != 0:
            return f"{self.encoding} have no scale"
        if self.encoding == "thresholds":
            return None if self.cap == 0 else "thresholds have no cap"
        if not 1 <= self.cap <= largest_cap(clients, self.ring_bits):
            return f"{clients} clients at the cap {self.cap} would wrap the {self.ring_bits}-bit ring"
        return None


def cost_vector(name: str, length: int, clients: int) -> VectorSpec:
    """Return the vector of costs in units of 2^-32, rounded up, with saturation words.

    Args:
        clients: the most clients that the cap must bear.
    """
    cap = largest_cap(clients, 64)
    return VectorSpec(name=name, encoding="costs", length=length, ring_bits=64, scale_bits=_COST_SCALE_BITS, cap=cap)


def count_vector(name: str, length: int, clients: int, *, noised: bool = False) -> VectorSpec:
    """Return the vector of a histogram or of other small integers. With noise on them they may be negative."""
    cap = largest_cap(clients, 32)
    encoding = "signed" if noised else "counts"
    return VectorSpec(name=name, encoding=encoding, length=length, ring_bits=32, scale_bits=0, cap=cap)


def maximum_vector(name: str, length: int, grid: ThresholdGrid) -> VectorSpec:
    """Return the vector of blinded thresholds: an upper bound on the maximum of each of `length` values."""
    return VectorSpec(name=name, encoding="thresholds", length=length, ring_bits=64, scale_bits=0, cap=0, grid=grid)


def encode(spec: VectorSpec, values: Values, randomness: Callable[[int], bytes]) -> RingVector:
    """Return the data words of `values`, shape (spec.data_words,). `randomness` is drawn on for thresholds only.

    Raises:
        EncodingError: wrong length, or what the encoding refuses.
    """
    if values.shape != (spec.length,):
        raise EncodingError(f"values of {spec.name} have shape {values.shape}, not ({spec.length},)")
    if spec.encoding == "counts":
        return encode_counts(values, ring_bits=spec.ring_bits, cap=spec.cap)
    if spec.grid is not None:
        return encode_thresholds(values, spec.grid.thresholds, randomness)
    if spec.encoding == "costs":
        return np.concatenate(encode_costs(values, scale_bits=spec.scale_bits, cap=spec.cap))
    return encode_signed(values, ring_bits=spec.ring_bits, scale_bits=spec.scale_bits, cap=spec.cap)


def require_in_range(spec: VectorSpec, words: RingVector) -> None:
    """Refuse data words that `encode` cannot have made: they could wrap the sum.

    Raises:
        EncodingError: wrong dtype or shape, or a word beyond the cap.
    """
    if words.dtype != spec.dtype or words.shape != (spec.data_words,):
        raise EncodingError(f"{spec.name} must hold {spec.data_words} words of {spec.ring_bits} bits")
    if spec.encoding == "thresholds":
        return
    if spec.encoding == "signed":
        # By both ends: the magnitude of the lowest integer has no word of its own.
        signed = words.view(f"<i{spec.dtype.itemsize}")
        outside = int(signed.max()) > spec.cap or int(signed.min()) < -spec.cap
    else:
        outside = int(words[: spec.length].max()) > spec.cap
        if spec.encoding == "costs":
            outside = outside or int(words[spec.length :].max()) > 1
    if outside:
        raise EncodingError(f"{spec.name} holds a word beyond its cap of {spec.cap}")


def decode(spec: VectorSpec, total: RingVector) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return the values of an unmasked sum of `spec.words` words: (length,), int64 for counts, float64 otherwise.

    Signed: the sum within n · 2^-(scale_bits+1). Costs: never below. Thresholds: an upper bound on the maximum.

    Raises:
        EncodingError: wrong length or a sum that only a client beyond its cap can cause.
    """
    if total.dtype != spec.dtype or total.shape != (spec.words,):
        raise EncodingError(f"the sum of {spec.name} must hold {spec.words} words of {spec.ring_bits} bits")
    data = total[: spec.data_words]
    if spec.encoding == "counts":
        return decode_counts(data)
    if spec.grid is not None:
        return decode_thresholds(data, spec.grid.thresholds)
    if spec.encoding == "costs":
        return decode_costs(data[: spec.length], data[spec.length :], scale_bits=spec.scale_bits)
    return decode_signed(data, scale_bits=spec.scale_bits)


def canary_buffer(spec: VectorSpec, h1: bytes, client: str) -> RingVector:
    """Return a fresh buffer of `spec.words` words that ends in the client's canary. The data words are not set."""
    buffer = aligned(spec.words, spec.dtype)
    buffer[spec.data_words] = 1
    buffer[spec.data_words + 1 :] = np.frombuffer(canary_word(h1, client, spec.name), spec.dtype)
    return buffer


def canary_sum(spec: VectorSpec, h1: bytes, clients: Iterable[str]) -> RingVector:
    """Return the last words of a sum over these clients: (spec.words − spec.data_words,)."""
    names = list(clients)
    words = np.array([np.frombuffer(canary_word(h1, name, spec.name), spec.dtype) for name in names])
    return np.array([spec.dtype.type(len(names)), *words.sum(axis=0, dtype=spec.dtype)], spec.dtype)


def aligned(size: int, dtype: np.dtype[np.unsignedinteger[Any]]) -> RingVector:
    """Return `size` uninitialised words that begin on a cache line: additions run up to a third faster."""
    raw = np.empty(size * dtype.itemsize + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + size * dtype.itemsize].view(dtype)


def ring_dtype(ring_bits: RingBits) -> np.dtype[np.unsignedinteger[Any]]:
    """Return little-endian unsigned words: the layout on the wire and of the keystream."""
    if ring_bits not in (32, 64):
        raise EncodingError(f"ring_bits is 32 or 64, not {ring_bits}")
    return np.dtype("<u4") if ring_bits == 32 else np.dtype("<u8")


def largest_cap(clients: int, ring_bits: RingBits) -> int:
    """Return the largest word magnitude with which `clients` words sum to less than 2^(ring_bits - 1)."""
    if clients < 1:
        raise EncodingError(f"clients is at least 1, not {clients}")
    return (2 ** (8 * ring_dtype(ring_bits).itemsize - 1) - 1) // clients


def encode_signed(values: Values, *, ring_bits: RingBits, scale_bits: int, cap: int) -> RingVector:
    """Return the nearest integers to values · 2^scale_bits, in two's complement, shape (d,) in and out.

    Raises:
        EncodingError: NaN, an infinity, a magnitude above `cap` ring units, or an array that is not (d,) floats.
    """
    dtype = ring_dtype(ring_bits)
    _require_reals(values, scale_bits)
    signed = np.dtype("<i4") if ring_bits == 32 else np.dtype("<i8")
    words = np.empty(values.shape, dtype)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK].astype(np.float64)
        np.rint(np.ldexp(block, scale_bits, out=block), out=block)
        low, high = float(block.min()), float(block.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise EncodingError("values holds NaN, an infinity or a number beyond float64 once scaled")
        # As integers: a cap near 2^63 is no float.
        if int(high) > cap or -int(low) > cap:
            raise EncodingError(f"values exceeds the range ±{cap} · 2^-{scale_bits}: clip it or choose a smaller scale")
        words[start : start + _BLOCK] = block.astype(signed).view(dtype)
    return words


def decode_signed(total: RingVector, *, scale_bits: int) -> NDArray[np.float64]:
    """Return summed words as reals, exact in the 32-bit ring and nearest float64 in the 64-bit ring."""
    signed = total.view(np.dtype(f"<i{total.dtype.itemsize}"))
    return np.ldexp(signed.astype(np.float64), -scale_bits)


def encode_costs(values: Values, *, scale_bits: int, cap: int) -> tuple[RingVector, RingVector]:
    """Return costs rounded up to multiples of 2^-scale_bits in Z_2^64, and 0/1 saturation words, both of shape (d,).

    Multiplying by a power of two and the ceiling are exact in float64, and a positive cost never becomes 0. An infinite
    cost, or one above `cap` units, is written as `cap` with saturation 1.

    Raises:
        EncodingError: NaN, a negative cost, -0.0, or an array that is not (d,) floats.
    """
    _require_costs(values, scale_bits)
    with np.errstate(over="ignore"):
        units = np.ceil(np.ldexp(values.astype(np.float64), scale_bits))
    saturated = units > _float_at_most(cap)
    # 0 first: casting a float beyond the ring is undefined.
    words = np.where(saturated, 0.0, units).astype("<u8")
    words[saturated] = cap
    return words, saturated.astype("<u8")


def decode_costs(total: RingVector, saturated: RingVector, *, scale_bits: int) -> NDArray[np.float64]:
    """Return summed costs as float64, rounded up, and infinity where any client saturated."""
    if bool((total >> np.uint64(63)).any()):
        raise EncodingError("total lies above 2^63: some client wrote more than its cap")
    nearest = total.astype(np.float64)
    # float64 rounds a sum above 2^53 to nearest, which may be down.
    short = nearest.astype(np.uint64) < total
    upward = np.where(short, np.nextafter(nearest, np.inf), nearest)
    return np.where(saturated != 0, np.inf, np.ldexp(upward, -scale_bits))


def encode_counts(counts: Values, *, ring_bits: RingBits, cap: int) -> RingVector:
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
    """Return summed counts.

    Raises:
        EncodingError: a sum in the upper half of the ring, which only a client beyond its cap can cause.
    """
    half = total.dtype.type(8 * total.dtype.itemsize - 1)
    if bool((total >> half).any()):
        raise EncodingError("total lies in the upper half of the ring: some client wrote more than its cap")
    return total.astype(np.int64)


@lru_cache(maxsize=32)
def geometric_grid(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return `count` thresholds from low to high with a constant ratio, the same floats on every machine.

    Decimal powers are rounded correctly everywhere. Those of libm differ from one system to another.

    Raises:
        EncodingError: unless 0 < low < high < infinity, count >= 2, and float64 keeps the thresholds apart.
    """
    if not (0 < low < high and math.isfinite(high)) or count < 2:
        raise EncodingError("a grid needs 0 < low < high < infinity and at least two thresholds")
    exact = Context(prec=40)
    ratio = exact.divide(Decimal(high), Decimal(low))
    powers = (exact.power(ratio, exact.divide(Decimal(k), Decimal(count - 1))) for k in range(1, count - 1))
    grid = (low, *(float(exact.multiply(Decimal(low), power)) for power in powers), high)
    if any(a >= b for a, b in pairwise(grid)):
        raise EncodingError("count is so large that neighbouring thresholds are equal")
    return grid


def encode_thresholds(
    values: Values, grid: tuple[float, ...], randomness: Callable[[int], bytes]
) -> NDArray[np.uint64]:
    """Return words of shape (values.size · len(grid),), one row of thresholds after the other.

    `randomness(n)` returns n uniform bytes. An infinite value exceeds every threshold.

    Raises:
        EncodingError: NaN, a negative value or -0.0, or an array that is not (d,) floats.
    """
    _require_costs(values)
    exceeds = values.astype(np.float64)[:, None] > np.array(grid)
    words = np.frombuffer(randomness(8 * exceeds.size), dtype="<u8").reshape(exceeds.shape)
    return np.where(exceeds, words, np.uint64(0)).ravel()


def decode_thresholds(total: RingVector, grid: tuple[float, ...]) -> NDArray[np.float64]:
    """Return per value the smallest threshold beyond the highest exceeded one, infinity above the grid."""
    exceeded: NDArray[Any] = total.reshape(-1, len(grid)) != 0
    # From the top: a lower sum may be 0 by chance, however many exceed it.
    above = np.where(exceeded.any(axis=1), len(grid) - np.argmax(exceeded[:, ::-1], axis=1), 0)
    return np.append(np.array(grid), np.inf)[above]


def _require_reals(values: Values, scale_bits: int = 0) -> None:
    if not 0 <= scale_bits <= 62:
        raise EncodingError(f"scale_bits lies in 0 … 62, not {scale_bits}")
    if values.ndim != 1 or values.dtype.kind != "f":
        raise EncodingError("values is a one-dimensional array of floats")


def _require_costs(values: Values, scale_bits: int = 0) -> None:
    _require_reals(values, scale_bits)
    if np.isnan(values).any() or np.signbit(values).any():
        raise EncodingError("values holds NaN, a negative number or -0.0: a cost is a number from 0 on, or infinity")


def _float_at_most(cap: int) -> float:
    # The nearest float of an integer above 2^53 may lie above it.
    nearest = float(cap)
    return nearest if int(nearest) <= cap else math.nextafter(nearest, 0.0)
