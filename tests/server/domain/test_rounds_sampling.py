from __future__ import annotations

from functools import partial

from server.domain.rounds import sample
from study_protocol.randomness.source import AddressedCoins, SeededRandomness


def test_rate_one_takes_everybody_without_a_coin() -> None:
    def no_coin(rate: float, *, client: str) -> bool:
        raise AssertionError

    assert sample(["b", "a"], 1.0, no_coin) == ["a", "b"]


def test_every_client_has_its_own_coin() -> None:
    thrown: list[tuple[str, float]] = []

    def heads(rate: float, *, client: str) -> bool:
        thrown.append((client, rate))
        return client != "b"

    assert sample(["c", "a", "b"], 0.3, heads) == ["a", "c"]
    assert sorted(thrown) == [("a", 0.3), ("b", 0.3), ("c", 0.3)]


def test_seeded_coins_depend_on_the_client_and_the_round_alone() -> None:
    coins, others = (AddressedCoins(SeededRandomness(1, allow_insecure=True)) for _ in range(2))
    names = [f"c{i}" for i in range(40)]
    first = sample(names, 0.5, partial(coins.heads, round_number=3))
    # Another order, and some of the clients gone: the rest throw what they threw.
    assert sample(reversed(names), 0.5, partial(others.heads, round_number=3)) == first
    assert sample(names[10:], 0.5, partial(others.heads, round_number=3)) == [c for c in first if c in names[10:]]
    assert sample(names, 0.5, partial(others.heads, round_number=4)) != first
