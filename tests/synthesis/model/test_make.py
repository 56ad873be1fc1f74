"""From noiseless tables to records with the same tables, and equal records from equal tables."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from synthesis.model.make import make_records
from synthesis.model.margins import margins_of, shares_of
from synthesis.model.noised import Noised, NoisedTable, pooled

SIZES, OUTCOME = (4, 10, 3, 2), 3


def _patients(count: int) -> np.ndarray:
    """A chain of columns: each depends on the one before and on the outcome."""
    source = np.random.default_rng(1)
    outcome = (source.random(count) < 0.3).astype(np.int64)
    first = np.minimum(source.poisson(0.8 + outcome), 3)
    second = np.minimum(source.poisson(1 + 2 * first), 9)
    third = np.minimum(source.poisson(0.1 * second + 0.4 * outcome), 2)
    return np.column_stack([first, second, third, outcome])


def _counts(cells: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    shape = tuple(SIZES[column] for column in columns)
    places = np.ravel_multi_index(tuple(cells[:, column] for column in columns), shape)
    return np.bincount(places, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)


def _noised(cells: np.ndarray, std: float, seed: int = 0) -> Noised:
    source, groups = np.random.default_rng(seed), np.array([0, 1, 2, 3, 4, 5, 6, 7, 7, 7])

    def table(columns: tuple[int, ...], places: np.ndarray | None = None) -> NoisedTable:
        counts = _counts(cells, (*columns, OUTCOME))
        if places is not None and 1 in columns:
            axis = columns.index(1)
            starts = np.unique(places, return_index=True)[1]
            counts = np.add.reduceat(counts, starts, axis=axis)
        return NoisedTable(counts + source.normal(0, std, counts.shape), std)

    return Noised(
        SIZES,
        OUTCOME,
        {1: groups},
        {column: table((column,)) for column in range(3)},
        {pair: table(pair, groups) for pair in itertools.combinations(range(3), 2)},
        {pair: table(pair) for pair in ((0, 1), (1, 2))},
    )


def test_records_have_the_tables_that_they_are_made_from() -> None:
    cells = _patients(20_000)
    found = make_records(_noised(cells, 1e-3), 20_000, 5)
    for columns in itertools.combinations(range(4), 2):
        assert np.abs(_counts(found, columns) - _counts(cells, columns)).sum() / 40_000 < 0.01


def test_equal_tables_in_any_order_give_equal_records() -> None:
    noised = _noised(_patients(3000), 5.0)
    again = replace(
        noised,
        columns=dict(reversed(noised.columns.items())),
        pairs=dict(reversed(noised.pairs.items())),
        edges=dict(reversed(noised.edges.items())),
    )
    records = make_records(noised, 1000, 9)
    assert (make_records(again, 1000, 9) == records).all()
    assert (make_records(noised, 1000, 10) != records).any()


@pytest.mark.parametrize("std", [1.0, 1e3, 1e6])
def test_margins_agree_with_one_another(std: float) -> None:
    margins = margins_of(_noised(_patients(3000), std))
    for counts in margins.columns.values():
        assert counts.min() >= 0
        assert counts.sum(axis=0) == pytest.approx(margins.outcomes)
    assert margins.patients == pytest.approx(margins.outcomes.sum())


def test_margins_use_every_table_that_holds_a_column() -> None:
    cells, own, all_tables = _patients(3000), 0.0, 0.0
    truth = _counts(cells, (1, 3))
    for seed in range(8):
        noised = _noised(cells, 40.0, seed)
        all_tables += np.abs(margins_of(noised).columns[1] - truth).sum()
        own += np.abs(margins_of(replace(noised, pairs={}, edges={})).columns[1] - truth).sum()
    assert all_tables < own


def test_a_mean_of_tables_is_weighted_by_precision() -> None:
    found = pooled([NoisedTable(np.array([10.0]), 1.0), NoisedTable(np.array([20.0]), 2.0)])
    assert found.counts.tolist() == pytest.approx([12.0])
    assert found.std == pytest.approx(np.sqrt(0.8))


def test_an_outcome_without_patients_has_no_shares() -> None:
    assert shares_of(np.array([[1.0, 0.0], [3.0, 0.0]])).tolist() == [[0.25, 0.0], [0.75, 0.0]]


@pytest.mark.slow
def test_many_columns_need_little_memory() -> None:
    columns, count = 40, 20_000
    pairs = {pair: NoisedTable(np.full((2, 2, 4), 50.0), 1.0) for pair in itertools.combinations(range(columns), 2)}
    singles = {column: NoisedTable(np.full((2, 4), 100.0), 1.0) for column in range(columns)}
    sizes = (*[2] * columns, 4)
    tracemalloc.start()
    try:
        rows = make_records(Noised(sizes, columns, {}, singles, pairs, {}), count, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows.shape == (count, columns + 1)
    # A byte for a record and pair, beside the records themselves and a few sorted copies.
    assert peak < 2 * count * len(pairs) + 6 * rows.nbytes
