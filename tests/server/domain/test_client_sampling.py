from __future__ import annotations

import pytest
from scipy.stats import binomtest

from server.domain.sampling import sample
from server.randomness import SecureCoins


def test_rate_one_takes_everybody_without_a_coin() -> None:
    def no_coin(rate: float) -> bool:
        raise AssertionError

    assert sample(["b", "a"], 1.0, no_coin) == ["a", "b"]


def test_every_client_has_its_own_coin() -> None:
    thrown: list[float] = []

    def heads(rate: float) -> bool:
        thrown.append(rate)
        return len(thrown) != 2

    assert sample(["c", "a", "b"], 0.3, heads) == ["a", "c"]
    assert thrown == [0.3] * 3


@pytest.mark.parametrize("rate", [0.5, 0.1, 1 / 3])
def test_coins_come_up_at_their_rate(rate: float) -> None:
    coins = SecureCoins()
    heads = sum(coins.heads(rate) for _ in range(20_000))
    # False alarm: 1e-9 for each of the three rates.
    assert binomtest(heads, 20_000, rate).pvalue > 1e-9


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.5, float("nan")])
def test_a_rate_is_a_probability(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        SecureCoins().heads(rate)
