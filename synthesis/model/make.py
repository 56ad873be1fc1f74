"""Records from noised tables: tree-augmented naive Bayes, raked to all pairs, and drawn again by weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthesis.model.arithmetic import Floats, Integers, RandomWords, gathered
from synthesis.model.fit import Crossed, fitted
from synthesis.model.margins import Margins, margins_of
from synthesis.model.noised import Noised, Pair
from synthesis.model.raking import Target, raked, resampled, scaled_to
from synthesis.model.rows import drawn_rows

# Passes over all tables: first half steps to targets around the drawn records, then whole ones around the raked.
_FIRST, _SECOND = (True, True, False), (True, False)


def make_records(noised: Noised, count: int, seed: int) -> Integers:
    """Return synthetic records as cells of each column, shape (count, columns).

    The same tables, count and seed give the same records on every processor with IEEE 754 arithmetic.

    Args:
        noised: the answers.
        count: how many records.
        seed: public, from 0 to 2⁶³ - 1.
    """
    words, margins = RandomWords(seed), margins_of(noised)
    edges = {pair: edge_of(noised, margins, pair) for pair in sorted(noised.edges)}
    rows = drawn_rows(noised.sizes, noised.outcome, margins, edges, count, words)
    if noised.pairs:
        rows = resampled(rows, _weights(noised, margins, edges, rows), words)
    return rows


def edge_of(noised: Noised, margins: Margins, pair: Pair) -> Floats:
    """Return the estimate of one pair's table by cells and outcome."""
    table, live = noised.edges[pair], margins.outcomes > 0
    rows, columns = (margins.columns[column] for column in pair)
    counts, std = table.counts, table.std
    coarse = noised.pairs.get(pair)
    if coarse is not None:
        first_groups, second_groups = (noised.groups_of(column) for column in pair)
        cells = np.multiply.outer(np.bincount(first_groups), np.bincount(second_groups)).astype(np.float64)[:, :, None]
        group_counts = gathered(gathered(counts, first_groups), second_groups, axis=1)
        variance = cells * table.variance
        better = (group_counts / variance + coarse.counts / coarse.variance) / (1 / variance + coarse.precision)
        counts = counts + ((better - group_counts) / cells)[first_groups][:, second_groups]
    expected = np.zeros_like(counts)
    estimate = fitted(
        Crossed(
            counts[None][..., live],
            expected[None][..., live],
            rows[None][..., live],
            columns[None][..., live],
            np.array([float(counts.shape[0])]),
            np.array([float(counts.shape[1])]),
            np.array([std]),
        ),
        shrinks=noised.shrinks,
    )
    expected[..., live] = estimate[0]
    return expected


def _weights(noised: Noised, margins: Margins, edges: Mapping[Pair, Floats], rows: Integers) -> Floats:
    """Return the weights of records, shape (n,), raked to pairs in groups and to the edges."""
    grouped = {column: noised.groups_of(column)[rows[:, column]] for column in noised.others}
    pairs = {
        (first_column, second_column): _crossed(
            grouped[first_column], grouped[second_column], rows[:, noised.outcome], table.counts.shape
        )
        for (first_column, second_column), table in noised.pairs.items()
    }
    fine: list[Target] = [
        (_crossed(rows[:, first_column], rows[:, second_column], rows[:, noised.outcome], table.shape), table.ravel())
        for (first_column, second_column), table in edges.items()
    ]
    weights = np.full(len(rows), margins.patients / len(rows))
    for steps in (_FIRST, _SECOND):
        weights = raked(weights, [*_targets(noised, margins, pairs, weights), *fine], steps)
        weights = scaled_to(weights, margins.patients)
    return weights


def _crossed(first_cells: Integers, second_cells: Integers, outcome: Integers, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the cell of every record in a table, in the fewest bytes, as there may be thousands of tables."""
    cells = (first_cells * shape[1] + second_cells) * shape[2] + outcome
    return cells.astype(np.min_scalar_type(math.prod(shape) - 1))


def _targets(noised: Noised, margins: Margins, cells: Mapping[Pair, NDArray[Any]], weights: Floats) -> list[Target]:
    """Return each pair's estimate, around the table of the weighted records."""
    pairs, live = list(noised.pairs), margins.outcomes > 0
    shapes = np.array([noised.pairs[pair].counts.shape for pair in pairs])
    height, width, outcomes = shapes.max(axis=0).tolist()
    counts, expected = (np.zeros((len(pairs), height, width, outcomes)) for _ in range(2))
    rows, columns = np.zeros((len(pairs), height, outcomes)), np.zeros((len(pairs), width, outcomes))
    coarse = {column: gathered(margins.columns[column], noised.groups_of(column)) for column in noised.others}
    for place, (pair, (high, wide, _)) in enumerate(zip(pairs, shapes.tolist(), strict=True)):
        table = noised.pairs[pair].counts
        counts[place, :high, :wide] = table
        expected[place, :high, :wide] = np.bincount(cells[pair], weights, table.size).reshape(table.shape)
        rows[place, :high], columns[place, :wide] = coarse[pair[0]], coarse[pair[1]]
    estimates = np.zeros_like(counts)
    estimates[..., live] = fitted(
        Crossed(
            counts[..., live],
            expected[..., live],
            rows[..., live],
            columns[..., live],
            shapes[:, 0].astype(np.float64),
            shapes[:, 1].astype(np.float64),
            np.array([noised.pairs[pair].std for pair in pairs]),
        ),
        shrinks=noised.shrinks,
    )
    return [
        (cells[pair], estimates[place, :high, :wide].ravel())
        for place, (pair, (high, wide, _)) in enumerate(zip(pairs, shapes.tolist(), strict=True))
    ]
