"""Coins at their exact rates, central noise of its round, and secrets that no seed gives away."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import (
    AddressedCoins,
    Purpose,
    Randomness,
    RandomSource,
    SeededRandomness,
    Subject,
)


@pytest.mark.parametrize("rate", [0.5, 0.1, 1 / 3])
def test_coins_come_up_at_their_rate(rate: float) -> None:
    coins = AddressedCoins()
    heads = sum(coins.heads(rate, client="a", round_number=1) for _ in range(20_000))
    # False alarm: 1e-9 for each of the three rates.
    assert binomtest(heads, 20_000, rate).pvalue > 1e-9


def test_a_coin_is_exact() -> None:
    """Heads where the drawn fraction, of as many bits as the rate has, lies below the rate: 2 of 8 bits give 3/4."""

    class Given(Randomness):
        secure = False

        def of(
            self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
        ) -> RandomSource:
            return _Byte(round_number)

    coins = AddressedCoins(Given())
    for rate in (0.75, 0.5, 3 / 256, 255 / 256, 1.0):
        assert sum(coins.heads(rate, client="a", round_number=byte) for byte in range(256)) == rate * 256


class _Byte(RandomSource):
    secure = False

    def __init__(self, byte: int) -> None:
        super().__init__()
        self._byte = byte

    def _key(self) -> bytes:
        raise AssertionError

    def read(self, size: int) -> bytes:
        assert size <= 1
        return bytes([self._byte])[:size]


def test_seeded_central_noise_and_sessions_are_those_of_their_round_and_secrets_are_never_seeded() -> None:
    one, other = (SeededRandomness(1, allow_insecure=True) for _ in range(2))
    skipped = DiscreteGaussianNoise(other)
    skipped.of(1)(5.0, 1000)
    noise = DiscreteGaussianNoise(one).of(2)(5.0, 50)
    assert skipped.of(2)(5.0, 50).tolist() == noise.tolist()
    assert skipped.of(3)(5.0, 50).tolist() != noise.tolist()
    coins, others = AddressedCoins(one), AddressedCoins(other)
    assert coins.session(2) == others.session(2) != coins.session(3)
    assert len(coins.session(2)) == 32
    assert coins.token(32) != others.token(32)


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.5, float("nan")])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        AddressedCoins().heads(rate, client="a", round_number=1)
