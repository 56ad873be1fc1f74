"""Weights of records, so that their tables agree with estimates (Deming and Stephan 1940), and records by weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthesis.model.arithmetic import Floats, Integers, RandomWords, divided, total_of

Target = tuple[NDArray[Any], Floats]
"""The cell of every record in one table, and the patients of each cell."""
# One step changes a weight by no more: a cell that noise emptied or filled must not rule the records.
_MOST = 5.0


def raked(weights: Floats, targets: Sequence[Target], steps: Iterable[bool]) -> Floats:
    """Return weights nearer to the targets.

    Args:
        weights: of the records, shape (n,), the same unit as the targets.
        targets: tables with one total.
        steps: for each pass over the targets, whether it goes only half of the way (on a logarithmic scale).
    """
    for is_half in steps:
        for cells, patients in targets:
            cell_weights = np.bincount(cells, weights, len(patients)).astype(np.float64)
            factors = np.where(cell_weights > 0, np.clip(divided(patients, cell_weights), 1 / _MOST, _MOST), 1.0)
            weights = weights * (np.sqrt(factors) if is_half else factors)[cells]
    return weights


def resampled(rows: Integers, weights: Floats, words: RandomWords) -> Integers:
    """Return as many records, each about in proportion to its weight, in random order.

    Records are sorted before they are counted off, so that like ones stand for one another.
    """
    count = len(rows)
    order = np.lexsort(rows.T[::-1])
    running = np.cumsum(weights[order])
    ends = np.minimum(np.floor(running / running[-1] * count + words.uniform(1)), count).astype(np.int64)
    ends[-1] = count
    record_numbers = np.repeat(order, np.diff(ends, prepend=0))
    return rows[record_numbers[np.argsort(words.words(count), kind="stable")]]


def scaled_to(weights: Floats, total: float) -> Floats:
    """Return the weights with this sum."""
    return weights * (total / total_of(weights))
