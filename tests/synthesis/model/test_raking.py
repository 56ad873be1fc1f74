"""Raking against a known solution, and whole records by weight."""

from __future__ import annotations

import numpy as np
import pytest

from synthesis.model.arithmetic import RandomWords
from synthesis.model.raking import raked, resampled, scaled_to


def test_raking_reaches_the_tables_and_keeps_odds_ratios() -> None:
    # A 2 × 2 table raked to new margins keeps its odds ratio, which fixes it.
    rows = np.array([0] * 40 + [1] * 60)
    columns = np.array([0] * 30 + [1] * 10 + [0] * 20 + [1] * 40)
    targets = [(rows, np.array([50.0, 50.0])), (columns, np.array([70.0, 30.0]))]
    weights = raked(np.ones(100), targets, [False] * 60)
    table = np.bincount(rows * 2 + columns, weights).reshape(2, 2)
    assert table.sum(axis=1) == pytest.approx([50, 50])
    assert table.sum(axis=0) == pytest.approx([70, 30])
    assert table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0]) == pytest.approx(30 * 40 / (10 * 20))


def test_one_step_is_bounded_and_half_a_step_is_its_root() -> None:
    cells, target = np.array([0, 1]), [(np.array([0, 1]), np.array([100.0, 0.0]))]
    assert raked(np.ones(2), target, [False]).tolist() == [5.0, 0.2]
    assert raked(np.ones(2), target, [True]) == pytest.approx(np.sqrt([5.0, 0.2]))
    assert raked(np.ones(2), [(cells, np.array([1.0, 1.0, 7.0]))], [False]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("seed", range(5))
def test_records_stand_as_often_as_their_weight_says(seed: int) -> None:
    source = np.random.default_rng(seed)
    rows = np.column_stack([source.permutation(500), source.integers(3, size=500)])
    weights = source.gamma(1, 1, 500)
    found = resampled(rows, weights, RandomWords(seed))
    assert len(found) == 500
    expected = 500 * weights / weights.sum()
    assert np.abs(np.bincount(found[:, 0], minlength=500)[rows[:, 0]] - expected).max() <= 1
    # The records are in random order, and each is one of those given.
    assert {tuple(row) for row in found.tolist()} <= {tuple(row) for row in rows.tolist()}
    assert not (np.diff(found[:, 0]) >= 0).all()


def test_a_record_without_weight_does_not_stand() -> None:
    rows = np.arange(10)[:, None]
    found = resampled(rows, np.array([1.0] * 5 + [0.0] * 5), RandomWords(0))
    assert np.bincount(found[:, 0]).tolist() == [2] * 5


def test_weights_are_scaled_to_a_sum() -> None:
    assert scaled_to(np.array([1.0, 3.0]), 8.0).tolist() == [2.0, 6.0]
