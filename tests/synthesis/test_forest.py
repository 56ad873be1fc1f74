"""The forest against all forests of small graphs, and χ² against a sum in fractions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from synthesis.forest import Association, Column, Pair, association, spanning_forest


def _chosen(found: Mapping[Pair, Association], most: int = 1 << 17) -> list[Pair]:
    """The forest where pair (i, j) has a table of (i + 1)·(j + 1) cells."""
    return spanning_forest(found, {(left, right): (left + 1) * (right + 1) for left, right in found}, most)


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
    chosen = _chosen(found)
    assert chosen == sorted(chosen)
    assert set(chosen) <= set(allowed)
    assert _is_forest(tuple(chosen), columns)
    assert sum(found[pair].chi_squared for pair in chosen) == heaviest


def test_the_order_of_pairs_does_not_matter_and_ties_go_to_the_lower_numbers() -> None:
    found = {pair: Association(9, 1) for pair in itertools.combinations(range(4), 2)}
    assert _chosen(found) == [(0, 1), (0, 2), (0, 3)]
    for order in itertools.permutations(found):
        assert _chosen({pair: found[pair] for pair in order}) == [(0, 1), (0, 2), (0, 3)]


def test_pairs_below_their_noise_make_an_empty_forest() -> None:
    # Two standard errors exactly, and less than nothing.
    assert _chosen({(0, 1): Association(4, 4), (0, 2): Association(-9, 1)}) == []
    assert _chosen({}) == []


def test_a_pair_that_passes_the_limit_is_left_out_and_a_weaker_one_may_fit() -> None:
    found = {(0, 1): Association(5, 1), (1, 2): Association(9, 1), (0, 2): Association(4, 1)}
    # Their tables have 2, 6 and 3 cells.
    assert [_chosen(found, most) for most in (8, 7, 5, 4, 2, 1)] == [
        [(0, 1), (1, 2)],
        [(1, 2)],
        [(0, 1), (0, 2)],
        [(0, 1)],
        [(0, 1)],
        [],
    ]


def _whole(values: object) -> np.ndarray:
    return np.array(values, object)


def _column(counts: object, variance: int = 0) -> Column:
    whole = _whole(counts)
    return Column(whole, [variance] * len(whole))


def test_the_association_is_chi_squared_less_noise_and_chance() -> None:
    table = _whole([[[900, 7], [100, 7]], [[200, 7], [800, 7]]])
    left, right = _column([[1000, 7], [1000, 7]], 50), _column([[1100, 7], [900, 7]], 70)
    found = association(table, left, right, [2000, 0], 10, 4)
    exact, variance = Fraction(0), Fraction(0)
    for i, j in itertools.product(range(2), repeat=2):
        p, q = (Fraction(column.counts[place, 0], 2000) for column, place in ((left, i), (right, j)))
        expected = 2000 * p * q
        spread = 100 + 4 * expected * (1 - p) * (1 - q) + 50 * q**2 + 70 * p**2
        exact += ((table[i, j, 0] - expected) ** 2 - spread) / expected
        variance += 2 * spread**2 / expected**2
    # Each of four cells is rounded by at most two.
    assert abs(found.chi_squared - exact) <= 8
    assert abs(found.variance - variance) <= 8


@pytest.mark.parametrize("noise", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("shares", [[0.25] * 4, [0.6, 0.3, 0.07, 0.03]])
def test_columns_that_do_not_depend_on_each_other_are_not_worth_a_pair(noise: float, shares: list[float]) -> None:
    """Patients vary too: with much ε that is all of χ², which has its degrees of freedom as its mean."""
    source, unit, runs = np.random.default_rng(1), 1024, 300
    found = list[Association]()
    for _ in range(runs):
        cells = source.multinomial(3000, np.outer(shares, shares).ravel(), 2).T.reshape(4, 4, 2)

        def noised(counts: np.ndarray) -> np.ndarray:
            return _whole(np.rint((counts + source.normal(0, noise, counts.shape)) * unit).astype(np.int64))

        left, right = (_column(noised(cells.sum(axis)), int((noise * unit) ** 2)) for axis in (1, 0))
        found.append(association(noised(cells), left, right, [3000 * unit] * 2, max(int(noise * unit), 1), unit))
    # Two standard errors, of a sum that is skewed to the right.
    assert sum(each.is_worth_noise for each in found) <= 0.08 * runs
    errors = np.array([each.chi_squared / float(np.sqrt(each.variance)) for each in found])
    assert abs(errors.mean()) <= 4 * errors.std() / np.sqrt(runs)


def test_a_dependence_is_worth_a_pair_with_little_noise() -> None:
    table = _whole([[[1100 * 1024], [900 * 1024]], [[900 * 1024], [1100 * 1024]]])
    even = _column([[2000 * 1024]] * 2)
    assert association(table, even, even, [4000 * 1024], 1, 1024).is_worth_noise


def test_counts_beyond_64_bits_and_below_zero_are_exact() -> None:
    table = _whole([[[2**60], [-(2**60)]], [[0], [2**60]]])
    margin = _column([[-5], [2**60]])
    found = association(table, margin, margin, [2**60], 3, 2)
    assert found.chi_squared == ((2**120 - 9) // 3) * 2 + (-9 // 3) + (-9 // 2**60)
