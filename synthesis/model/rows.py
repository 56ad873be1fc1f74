"""Records of a tree-augmented naive Bayes model (Friedman, Geiger, Goldszmidt 1997), drawn with little variance.

The records of one outcome and one value of a column's parent get the column's values in the model's proportions, up to
one record a value, in random order. So tables of an edge hold nearly no error of drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from synthesis.model.arithmetic import Floats, Integers, RandomWords, divided, summed
from synthesis.model.margins import Margins
from synthesis.model.noised import Pair


def drawn_rows(
    sizes: Sequence[int], outcome: int, margins: Margins, edges: Mapping[Pair, Floats], count: int, words: RandomWords
) -> Integers:
    """Return records as cells of each column, shape (count, columns).

    Args:
        sizes: cells of each column.
        outcome: its number.
        margins: of each other column.
        edges: of a forest: tables by outcome, shape (cells, cells, outcomes).
        count: how many records.
        words: the source of chance.
    """
    rows = np.zeros((count, len(sizes)), np.int64)
    of_outcome = allotted(margins.outcomes[None], np.array([count], np.int64), words)[0]
    rows[:, outcome] = np.repeat(np.arange(sizes[outcome]), of_outcome)
    for column, parent in _from_roots(sorted(margins.columns), edges):
        column_margin = margins.columns[column].T
        if parent is None:
            group_numbers, shares = rows[:, outcome], column_margin
        else:
            table = edges[parent, column] if parent < column else edges[column, parent].transpose(1, 0, 2)
            group_numbers = rows[:, outcome] * sizes[parent] + rows[:, parent]
            shares = table.transpose(2, 0, 1).reshape(-1, sizes[column])
            # A parent's value without patients in the table can still be drawn where another table has some.
            empty = summed(shares, 1) <= 0
            shares = np.where(empty[:, None], np.repeat(column_margin, sizes[parent], axis=0), shares)
        rows[:, column] = _dealt(group_numbers, shares, words)
    return rows


def allotted(shares: Floats, counts: Integers, words: RandomWords) -> Integers:
    """Return whole numbers with these sums, each within one of its share: systematic sampling.

    Args:
        shares: (g, k), of any positive sum. A group of zeros goes to its last value.
        counts: (g,) records of each group.
        words: the source of chance.
    """
    running = np.cumsum(shares, axis=1)
    running = divided(running, np.broadcast_to(running[:, -1:], running.shape)) * counts[:, None]
    ends = np.floor(running + words.uniform(len(counts))[:, None]).astype(np.int64)
    ends = np.minimum(ends, counts[:, None])
    ends[:, -1] = counts
    return np.diff(ends, axis=1, prepend=0)


def _dealt(group_numbers: Integers, shares: Floats, words: RandomWords) -> Integers:
    """Return a value for every record: each group's values in the shares of its row, in random order."""
    counts = allotted(shares, np.bincount(group_numbers, minlength=len(shares)), words)
    values = np.repeat(np.arange(counts.size, dtype=np.int64) % shares.shape[1], counts.ravel())
    order = np.lexsort((words.words(len(group_numbers)), group_numbers))
    dealt = np.empty(len(group_numbers), np.int64)
    dealt[order] = values
    return dealt


def _from_roots(columns: Sequence[int], edges: Mapping[Pair, Floats]) -> list[tuple[int, int | None]]:
    """Return each column with its parent, parents first."""
    neighbours: dict[int, list[int]] = {column: [] for column in columns}
    for first_column, second_column in sorted(edges):
        neighbours[first_column].append(second_column)
        neighbours[second_column].append(first_column)
    parents: dict[int, int | None] = {}
    for root in columns:
        waiting: list[tuple[int, int | None]] = [] if root in parents else [(root, None)]
        while waiting:
            column, parent = waiting.pop(0)
            parents[column] = parent
            waiting += [(child, column) for child in neighbours[column] if child != parent]
    return list(parents.items())
