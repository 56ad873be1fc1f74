"""The forest against all forests of small graphs, and χ² against a sum in fractions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from synthesis.forest import Association, Pair, association, spanning_forest


def _is_forest(pairs: tuple[Pair, ...], columns: int) -> bool:
    reached = [{column} for column in range(columns)]
    for left, right in pairs:
        joined = next(part for part in reached if left in part)
        other = next(part for part in reached if right in part)
        if joined is other:
            return False
        reached.remove(other)
        joined |= other
    return True


def _forest(found: Mapping[Pair, Association]) -> list[Pair]:
    return spanning_forest(found, dict.fromkeys(found, 1), len(found))


@pytest.mark.parametrize("seed", range(8))
def test_no_forest_of_pairs_worth_their_noise_is_heavier(seed: int) -> None:
    source, columns = np.random.default_rng(seed), 5
    found = {
        pair: Association(int(source.integers(-5, 30)), int(source.integers(0, 40)))
        for pair in itertools.combinations(range(columns), 2)
    }
    allowed = [pair for pair, value in found.items() if value.is_worth_noise]
    heaviest = max(
        sum(found[pair].chi_squared for pair in pairs)
        for count in range(columns)
        for pairs in itertools.combinations(allowed, count)
        if _is_forest(pairs, columns)
    )
    chosen = _forest(found)
    assert chosen == sorted(chosen)
    assert set(chosen) <= set(allowed)
    assert _is_forest(tuple(chosen), columns)
    assert sum(found[pair].chi_squared for pair in chosen) == heaviest


def test_the_order_of_pairs_does_not_matter_and_ties_go_to_the_lower_numbers() -> None:
    found = {pair: Association(9, 1) for pair in itertools.combinations(range(4), 2)}
    assert _forest(found) == [(0, 1), (0, 2), (0, 3)]
    for order in itertools.permutations(found):
        assert _forest({pair: found[pair] for pair in order}) == [(0, 1), (0, 2), (0, 3)]


def test_pairs_below_their_noise_make_an_empty_forest() -> None:
    # Two standard errors exactly, and less than nothing.
    assert _forest({(0, 1): Association(4, 4), (0, 2): Association(-9, 1)}) == []
    assert _forest({}) == []


def test_a_pair_whose_table_is_too_large_is_passed_over_for_the_next() -> None:
    found = {(0, 1): Association(90, 1), (0, 2): Association(80, 1), (1, 2): Association(70, 1)}
    cells = {(0, 1): 60, (0, 2): 50, (1, 2): 40}
    assert [spanning_forest(found, cells, most) for most in (110, 109, 100, 59, 39)] == [
        [(0, 1), (0, 2)],
        [(0, 1), (1, 2)],
        [(0, 1), (1, 2)],
        [(0, 2)],
        [],
    ]


def _whole(values: object) -> np.ndarray:
    return np.array(values, object)


def test_the_association_is_chi_squared_less_its_noise() -> None:
    table = _whole([[[900, 7], [100, 7]], [[200, 7], [800, 7]]])
    left, right = _whole([[1000, 7], [1000, 7]]), _whole([[1100, 7], [900, 7]])
    found = association(table, left, right, [2000, 0], 10)
    expected = {(i, j): Fraction(left[i, 0] * right[j, 0], 2000) for i in range(2) for j in range(2)}
    exact = sum(((table[i, j, 0] - e) ** 2 - 100) / e for (i, j), e in expected.items())
    # Each of four cells is rounded down by less than one.
    assert exact - 4 <= found.chi_squared <= exact
    assert found.variance == sum(int(2 * 10**4 // e**2) for e in expected.values())


def test_without_association_noise_alone_is_not_worth_a_pair() -> None:
    source, worth = np.random.default_rng(1), 0
    for _ in range(200):
        noise = np.rint(source.normal(0, 1000, (4, 4, 2))).astype(np.int64)
        table = (noise + 20_000).astype(object)
        worth += association(
            table, _whole([[80_000] * 2] * 4), _whole([[80_000] * 2] * 4), [320_000] * 2, 1000
        ).is_worth_noise
    # Two standard errors, of a sum that is skewed to the right.
    assert worth <= 16


def test_counts_beyond_64_bits_and_below_zero_are_exact() -> None:
    table = _whole([[[2**60], [-(2**60)]], [[0], [2**60]]])
    margin = _whole([[-5], [2**60]])
    found = association(table, margin, margin, [2**60], 3)
    assert found.chi_squared == ((2**120 - 9) // 3) * 2 + (-9 // 3) + (-9 // 2**60)
