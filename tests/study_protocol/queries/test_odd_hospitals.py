"""Tests of hospitals against each other: exact laws, rates of false alarms, who is named."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, poisson

from study_protocol.queries.odd_hospitals import (
    FIRST,
    HOLM,
    SHARES,
    NoisedShare,
    OutsideCount,
    outside_found,
    shares_found,
    together,
)

NAMES = ("east", "north", "south", "west")


@pytest.mark.parametrize(("count", "std", "tolerated"), [(40.0, 13.0, 2.0), (9.0, 0.5, 1.5), (3.0, 4.0, 0.0)])
def test_a_chance_is_that_of_poissons_law_with_normal_noise(count: float, std: float, tolerated: float) -> None:
    counts = np.arange(400)
    expected = float((poisson.pmf(counts, tolerated) * norm.sf((count - counts) / std)).sum())
    assert OutsideCount(count, std, tolerated).chance == pytest.approx(expected, rel=1e-9)


def test_a_large_number_that_is_tolerated_is_compared_with_a_normal_law() -> None:
    exact = float((poisson.pmf(np.arange(4000), 1001.0) * norm.sf((1100 - np.arange(4000)) / 20.0)).sum())
    assert OutsideCount(1100.0, 20.0, 1001.0).chance == pytest.approx(exact, rel=0.1)


def test_all_levels_together_allow_one_false_alarm_in_twenty() -> None:
    assert FIRST + HOLM + SHARES <= 1 / 20


def outside(**counts: float) -> dict[str, OutsideCount]:
    return {name: OutsideCount(counts.get(name, 0.0), 10.0, 1.0) for name in NAMES}


def test_a_hospital_is_found_more_easily_where_another_one_has_the_same_error() -> None:
    quiet = [outside() for _ in range(20)]
    found = outside_found([outside(west=27.0), *quiet])
    assert found == []
    found = outside_found([outside(west=27.0, south=120.0), *quiet])
    assert [(one.cell, one.hospital) for one in found] == [(0, "south"), (0, "west")]
    # What was found elsewhere divides the level of the others.
    elsewhere = [outside(north=120.0) for _ in range(8)]
    found = outside_found([outside(west=27.0, south=120.0), *elsewhere, *quiet])
    assert ("west" in {one.hospital for one in found}) is False


def test_hospitals_like_the_others_are_named_no_more_often_than_allowed() -> None:
    """In one cell a real error of one hospital opens the second level. All others hold noise alone."""
    source, runs, false = np.random.default_rng(5), 2000, 0
    for _ in range(runs):
        noise = source.normal(0.0, 10.0, (20, 4))
        noise[0, 0] += 200.0
        cells = [{name: OutsideCount(float(row[i]), 10.0, 0.0) for i, name in enumerate(NAMES)} for row in noise]
        false += any((one.cell, one.hospital) != (0, "east") for one in outside_found(list(cells)))
    assert false / runs <= FIRST + HOLM + 3 * np.sqrt(0.05 / runs)
    # It is used, too: a test that never fails would find nothing.
    assert false / runs >= 0.02


def shares(source: np.random.Generator, rates: list[float], sizes: list[int], std: float) -> dict[str, NoisedShare]:
    return {
        name: NoisedShare(
            float(2 * source.binomial(size, rate) - size + source.normal(0.0, std)),
            float(size + source.normal(0.0, std)),
            std**2,
            std**2,
        )
        for name, rate, size in zip(NAMES, rates, sizes, strict=True)
    }


@pytest.mark.parametrize(
    ("rate", "sizes", "std"), [(0.3, [300, 300, 120, 200], 40.0), (0.02, [50, 5000, 5000, 5000], 3.0)]
)
def test_equal_shares_differ_no_more_often_than_allowed(rate: float, sizes: list[int], std: float) -> None:
    """At a level that is seen in few runs: 4 hospitals at 0.05 each. Sizes are noise nearly, or rates small."""
    source, runs = np.random.default_rng(6), 500
    chances = []
    for _ in range(runs):
        # One cell: its level is SHARES / 4. All chances below 1 are found by comparing with three equal copies.
        found = shares_found([shares(source, [rate] * 4, sizes, std)])
        chances.append(bool(found))
    assert np.mean(chances) <= SHARES + 3 * np.sqrt(SHARES / runs)


def test_the_hospital_that_differs_most_is_named_and_then_taken_out() -> None:
    source = np.random.default_rng(7)
    cell = shares(source, [0.5, 0.5, 0.95, 0.02], [2000] * 4, 10.0)
    found = shares_found([cell])
    assert [one.hospital for one in found] == ["west", "south"]
    assert together(cell, {"south", "west"}).value == pytest.approx(0.5, abs=0.03)


def test_of_two_hospitals_one_is_named() -> None:
    source = np.random.default_rng(8)
    cell = shares(source, [0.1, 0.1, 0.1, 0.9], [2000] * 4, 10.0)
    assert len(shares_found([{name: cell[name] for name in ("east", "west")}])) == 1
    assert shares_found([{name: cell[name] for name in ("east", "north")}]) == []


def test_nobody_at_all_differs_from_nobody() -> None:
    nothing = {name: NoisedShare(0.0, 0.0, 0.0, 0.0) for name in NAMES}
    assert shares_found([nothing]) == []
    assert shares_found([]) == []
    assert outside_found([]) == []
