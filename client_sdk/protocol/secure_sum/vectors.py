"""The vectors of a secure sum: what each holds, how long it is, and the canary words at its end.

Words of a vector, in order: the data, for costs as many saturation words, a 1 (its sum counts the survivors)
and 64 bits that the coordinator knows (their sum shows whether every mask cancelled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from client_sdk.protocol.secure_sum import fixed_point, maximum
from client_sdk.protocol.secure_sum.fixed_point import EncodingError, RingBits, RingVector
from client_sdk.protocol.secure_sum.masking import aligned
from client_sdk.protocol.secure_sum.transcript import canary_word
from client_sdk.protocol.study.fields import Message, Positive

_COST_SCALE_BITS = 32

VectorName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
Values: TypeAlias = NDArray[np.float64] | NDArray[np.float32] | NDArray[np.int64]


class ThresholdGrid(Message):
    """Public thresholds of a blinded maximum: `count` of them from `low` to `high` in geometric steps."""

    low: Positive
    high: Positive
    count: int = Field(ge=2, le=65_536)

    @property
    def thresholds(self) -> tuple[float, ...]:
        return maximum.geometric_grid(self.low, self.high, self.count)


class VectorSpec(Message):
    """One vector of a session; part of the signed parameters.

    encoding    signed: updates; costs: rounded up; counts: histograms; thresholds: a maximum
    length      values, before saturation words or thresholds multiply them
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
        if self.encoding == "costs":
            return 2 * self.length
        return self.length * self.grid.count if self.grid is not None else self.length

    @property
    def words(self) -> int:
        """Words on the wire, canary included."""
        return self.data_words + 1 + 64 // self.ring_bits

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        return fixed_point.ring_dtype(self.ring_bits)

    @property
    def octets(self) -> int:
        return self.words * self.dtype.itemsize

    def fault(self, clients: int) -> str | None:
        """Why a sum over `clients` clients could wrap or be misread, or None."""
        if (self.encoding == "thresholds") != (self.grid is not None):
            return "a grid belongs to thresholds, and to nothing else"
        if self.encoding in ("costs", "thresholds") and self.ring_bits != 64:
            return f"{self.encoding} need the 64-bit ring"
        if self.encoding in ("counts", "thresholds") and self.scale_bits != 0:
            return f"{self.encoding} have no scale"
        if self.encoding == "thresholds":
            return None if self.cap == 0 else "thresholds have no cap"
        if not 1 <= self.cap <= fixed_point.largest_cap(clients, self.ring_bits):
            return f"{clients} clients at the cap {self.cap} would wrap the {self.ring_bits}-bit ring"
        return None


def cost_vector(name: str, length: int, clients: int) -> VectorSpec:
    """Costs in units of 2^-32, rounded up, with saturation words. `clients`: the most that the cap must bear."""
    cap = fixed_point.largest_cap(clients, 64)
    return VectorSpec(name=name, encoding="costs", length=length, ring_bits=64, scale_bits=_COST_SCALE_BITS, cap=cap)


def count_vector(name: str, length: int, clients: int, *, noised: bool = False) -> VectorSpec:
    """Histograms and other small integers; with noise on them they may be negative."""
    cap = fixed_point.largest_cap(clients, 32)
    encoding = "signed" if noised else "counts"
    return VectorSpec(name=name, encoding=encoding, length=length, ring_bits=32, scale_bits=0, cap=cap)


def maximum_vector(name: str, length: int, grid: ThresholdGrid) -> VectorSpec:
    """Blinded thresholds: an upper bound on the maximum of each of `length` values."""
    return VectorSpec(name=name, encoding="thresholds", length=length, ring_bits=64, scale_bits=0, cap=0, grid=grid)


def encode(spec: VectorSpec, values: Values, randomness: Callable[[int], bytes]) -> RingVector:
    """The data words of `values`, shape (spec.data_words,). `randomness` is drawn on for thresholds only.

    Raises:
        EncodingError: wrong length, or what the encoding refuses (`fixed_point`, `maximum`).
    """
    if values.shape != (spec.length,):
        raise EncodingError(f"values of {spec.name} have shape {values.shape}, not ({spec.length},)")
    if spec.encoding == "counts":
        if values.dtype.kind not in "iu":
            raise EncodingError(f"values of {spec.name} are counts: integers, not {values.dtype}")
        return fixed_point.encode_counts(values.astype(np.int64), ring_bits=spec.ring_bits, cap=spec.cap)
    if values.dtype.kind != "f":
        raise EncodingError(f"values of {spec.name} are floats, not {values.dtype}")
    reals = values.astype(np.float64, copy=False)
    if spec.grid is not None:
        return maximum.encode_thresholds(reals, spec.grid.thresholds, randomness)
    if spec.encoding == "costs":
        return np.concatenate(fixed_point.encode_costs(reals, scale_bits=spec.scale_bits, cap=spec.cap))
    return fixed_point.encode_signed(reals, ring_bits=spec.ring_bits, scale_bits=spec.scale_bits, cap=spec.cap)


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
        signed = words.view(f"<i{spec.dtype.itemsize}")
        outside = int(signed.max()) > spec.cap or int(signed.min()) < -spec.cap
    else:
        outside = int(words[: spec.length].max()) > spec.cap
        if spec.encoding == "costs":
            outside = outside or int(words[spec.length :].max()) > 1
    if outside:
        raise EncodingError(f"{spec.name} holds a word beyond its cap of {spec.cap}")


def canary_buffer(spec: VectorSpec, h1: bytes, client: str) -> RingVector:
    """A fresh buffer of `spec.words` words that ends in the client's canary; the data words are not set."""
    buffer = aligned(spec.words, spec.dtype)
    buffer[spec.data_words] = 1
    buffer[spec.data_words + 1 :] = np.frombuffer(canary_word(h1, client, spec.name), spec.dtype)
    return buffer


def canary_holds(spec: VectorSpec, total: RingVector, h1: bytes, clients: Iterable[str]) -> bool:
    """Whether the last words of the unmasked sum are what exactly these clients wrote."""
    names = list(clients)
    words = np.array([np.frombuffer(canary_word(h1, name, spec.name), spec.dtype) for name in names])
    expected = [spec.dtype.type(len(names)), *words.sum(axis=0, dtype=spec.dtype)]
    return total.shape == (spec.words,) and bool(np.array_equal(total[spec.data_words :], expected))


def decode(spec: VectorSpec, total: RingVector) -> NDArray[np.float64] | NDArray[np.int64]:
    """The values of an unmasked sum of `spec.words` words: (length,), int64 for counts, float64 otherwise.

    Signed: the sum within n · 2^-(scale_bits+1). Costs: never below. Thresholds: an upper bound on the maximum.

    Raises:
        EncodingError: wrong length or a sum that only a client beyond its cap can cause.
    """
    if total.dtype != spec.dtype or total.shape != (spec.words,):
        raise EncodingError(f"the sum of {spec.name} must hold {spec.words} words of {spec.ring_bits} bits")
    data = total[: spec.data_words]
    if spec.encoding == "counts":
        return fixed_point.decode_counts(data)
    if spec.grid is not None:
        return maximum.decode_thresholds(data, spec.grid.thresholds)
    if spec.encoding == "costs":
        return fixed_point.decode_costs(data[: spec.length], data[spec.length :], scale_bits=spec.scale_bits)
    return fixed_point.decode_signed(data, scale_bits=spec.scale_bits)
