"""The coordinator's coins and its central noise, both from the operating system's generator."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.discrete_gaussian import sampler
from client_sdk.protocol.randomness import RandomSource, SecureSource


class SecureCoins:
    """Unpredictable choices."""

    def heads(self, rate: float) -> bool:
        """True with probability exactly `rate`: a float is a fraction, and integers below its denominator are uniform.

        Raises:
            ValueError: a rate outside (0, 1].
        """
        if not 0 < rate <= 1:
            raise ValueError("rate lies in (0, 1]")
        numerator, denominator = rate.as_integer_ratio()
        return secrets.randbelow(denominator) < numerator

    def token(self, size: int) -> bytes:
        """`size` unpredictable bytes."""
        return secrets.token_bytes(size)


class DiscreteGaussianNoise:
    """Exact discrete Gaussian integers from AES-256 in counter mode, keyed by the operating system."""

    def __init__(self, source: RandomSource | None = None) -> None:
        self._source = source or SecureSource()

    def integers(self, std: float, size: int) -> NDArray[np.int64]:
        """(size,) independent draws with parameter `std`, in grid units."""
        return sampler(std).sample(size, self._source)
