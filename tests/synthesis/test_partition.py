"""Groups of cells: always a partition, bins with their neighbours, and of about equal mass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from study_protocol.queries.variables import Variable
from study_protocol.study.synthesis import MAX_GROUPS
from synthesis.partition import groups_of


def _bins(count: int) -> Variable:
    return Variable(column="x", edges=tuple(range(count - 2)))


def _categories(count: int) -> Variable:
    return Variable(column="x", categories=tuple(f"c{place}" for place in range(count - 2)))


COUNTS: dict[str, Any] = {
    "zeros": lambda source, size: np.zeros((size, 4), int),
    "below zero": lambda source, size: -source.integers(1, 10**6, (size, 4)),
    "noise": lambda source, size: source.integers(-(10**6), 10**6, (size, 4)),
    "one full cell": lambda source, size: np.eye(size, 4, dtype=int) * 2**60,
    "patients": lambda source, size: source.integers(0, 10**9, (size, 4)),
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS.keys())
@pytest.mark.parametrize("size", [9, 10, 17, 66])
@pytest.mark.parametrize("make", [_bins, _categories])
@pytest.mark.parametrize("most", range(2, MAX_GROUPS + 1))
def test_groups_are_a_partition(make: Callable[[int], Variable], size: int, counts: Any, most: int) -> None:
    table = counts(np.random.default_rng(size), size).tolist()
    groups = groups_of(make(size), table, most)
    assert len(groups) == size
    assert set(groups) == set(range(max(groups) + 1))
    assert max(groups) < most
    if make is _bins:
        assert list(groups) == sorted(groups)


def test_a_short_column_has_no_groups() -> None:
    assert groups_of(_bins(8), [[1, 2]] * 8) == ()


def test_no_group_of_bins_is_heavier_than_its_share_and_a_bin() -> None:
    source = np.random.default_rng(3)
    for _ in range(50):
        masses = source.integers(0, 1000, 40)
        groups = np.array(groups_of(_bins(40), [[mass, 0] for mass in masses.tolist()]))
        held = np.bincount(groups, masses)
        assert len(held) == MAX_GROUPS
        assert held.max() <= masses.sum() / (MAX_GROUPS - 1) + masses.max()


def test_many_missing_values_stand_alone() -> None:
    groups = groups_of(_bins(20), [[10, 0]] * 19 + [[100, 0]])
    assert groups.count(groups[-1]) == 1
    groups = groups_of(_bins(20), [[10, 0]] * 19 + [[1, 0]])
    assert groups.count(groups[-1]) > 1


def test_rare_categories_are_divided_by_their_share_of_the_second_outcome() -> None:
    large, low, high = [[1000 + place, 500] for place in range(6)], [[90, 10]] * 4, [[10, 90]] * 4
    groups = groups_of(_categories(14), [*large, *low, *high])
    assert sorted(groups[:6]) == list(range(6))
    assert groups[6:] == (6, 6, 6, 6, 7, 7, 7, 7)
