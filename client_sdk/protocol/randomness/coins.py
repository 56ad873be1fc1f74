"""The coordinator's coins and its central noise, addressed by round; cryptographic unless a seed is given."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.randomness.discrete_gaussian import sampler
from client_sdk.protocol.randomness.source import COORDINATOR, Purpose, Randomness, SecureRandomness


class AddressedCoins:
    """Every client's coin and every session's identifier at an address of its own; secrets are never addressed."""

    def __init__(self, randomness: Randomness | None = None) -> None:
        self._randomness = randomness or SecureRandomness()

    def heads(self, rate: float, *, client: str, round: int) -> bool:
        """True with probability exactly `rate`: a float is a fraction whose denominator is a power of two.

        Raises:
            ValueError: a rate outside (0, 1].
        """
        if not 0 < rate <= 1:
            raise ValueError("rate lies in (0, 1]")
        numerator, denominator = rate.as_integer_ratio()
        bits = denominator.bit_length() - 1
        octets = -(-bits // 8)
        drawn = self._randomness.of(Purpose.COINS, party=client, round=round).read(octets)
        return int.from_bytes(drawn) >> (8 * octets - bits) < numerator

    def session(self, round: int) -> bytes:
        """32 bytes that name the round's secure sum."""
        return self._randomness.of(Purpose.SESSION, party=COORDINATOR, round=round).read(32)

    def token(self, size: int) -> bytes:
        """`size` unpredictable bytes, also beside seeded randomness: keys and invitations are secrets in any case."""
        return secrets.token_bytes(size)


class DiscreteGaussianNoise:
    """Exact discrete Gaussian integers, a stream for each round."""

    def __init__(self, randomness: Randomness | None = None) -> None:
        self._randomness = randomness or SecureRandomness()

    def of(self, round: int) -> Callable[[float, int], NDArray[np.int64]]:
        """draw(std, size): the round's next (size,) independent draws with parameter `std`, in grid units."""
        source = self._randomness.of(Purpose.CENTRAL_NOISE, party=COORDINATOR, round=round)
        return lambda std, size: sampler(std).sample(size, source)
