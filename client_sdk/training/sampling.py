"""Poisson batches by a cryptographic sampler."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.randomness.source import RandomSource


def poisson_batch(records: int, sampling_rate: float, *, source: RandomSource) -> NDArray[np.int64]:
    """Indices, ascending, of the records drawn: each one independently with probability sampling_rate.

    The coin compares a 64-bit uniform word with ⌊sampling_rate · 2⁶⁴⌋, so the true rate is never above the stated one
    and less than 2⁻⁶⁴ below it. Empty batches happen, and must still be noised.

    Raises ValueError for a negative number of records or a rate outside [0, 1] (NaN and −0.0 included).
    """
    if records < 0:
        raise ValueError(f"records must be at least 0, got {records}")
    if not 0.0 <= sampling_rate <= 1.0 or math.copysign(1.0, sampling_rate) < 0:
        raise ValueError(f"sampling_rate must lie in [0, 1], got {sampling_rate!r}")
    if sampling_rate == 1.0:
        return np.arange(records, dtype=np.int64)
    # Exact: a float below 1 times a power of two only shifts the exponent; int() drops what is below one part in 2^64.
    threshold = np.uint64(int(math.ldexp(sampling_rate, 64)))
    return np.flatnonzero(source.words(records, np.uint64) < threshold).astype(np.int64)
