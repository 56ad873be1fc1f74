"""The pairs that are worth their own noise: a maximum spanning forest of χ² less noise and chance, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[Any]
"""Python's own integers, in any shape: products of counts pass 64 bits."""
Pair = tuple[int, int]
# Standard errors of χ² under no association that a pair must pass.
_LEAST_ERRORS = 2


@dataclass(frozen=True)
class Association:
    """chi_squared: beyond what noise and chance add. variance: of it where columns do not depend on each other."""

    chi_squared: int
    variance: int

    @property
    def is_worth_noise(self) -> bool:
        return self.chi_squared > 0 and self.chi_squared**2 > _LEAST_ERRORS**2 * self.variance


@dataclass(frozen=True)
class Column:
    """One column by outcome, from other noise than a pair's table.

    counts: (groups, outcomes). variances: (groups,) of the noise in one count. All are in one unit.
    """

    counts: Whole
    variances: Sequence[int]


def association(table: Whole, left: Column, right: Column, outcomes: Sequence[int], std: int, unit: int) -> Association:
    """Return how far one pair's noised table lies from independence within each outcome.

    Subtracted is what independent columns give on average: the noise of the table, that of the columns in the expected
    counts, and that patients vary, by E·(1 - p)·(1 - q) where p and q are the shares of the two columns' groups.

    Args:
        table: (groups, groups, outcomes).
        left: the first column.
        right: the second.
        outcomes: patients of each outcome. One without patients counts for nothing.
        std: of the noise in one cell of the table.
        unit: what one patient counts for, in all of them.
    """
    chi_squared = variance = 0
    noises = [np.array(column.variances, object) for column in (left, right)]
    for outcome, patients in enumerate(outcomes):
        if patients <= 0:
            continue
        one, other = (np.maximum(column.counts[:, outcome], 0) for column in (left, right))
        expected = np.multiply.outer(one, other) // patients
        others = np.multiply.outer(np.maximum(patients - one, 0), np.maximum(patients - other, 0))
        columns = np.multiply.outer(noises[0], other**2) + np.multiply.outer(one**2, noises[1])
        spread = std**2 + expected * unit * others // patients**2 + columns // patients**2
        least = np.maximum(expected, std)
        chi_squared += int((((table[:, :, outcome] - expected) ** 2 - spread) // least).sum())
        variance += int((2 * spread**2 // least**2).sum())
    return Association(chi_squared, variance)


def spanning_forest(associations: Mapping[Pair, Association], cells: Mapping[Pair, int], most: int) -> list[Pair]:
    """Return the pairs of a maximum spanning forest (Kruskal 1956), of those worth their noise, in rising order.

    Args:
        associations: of all pairs.
        cells: of their tables.
        most: cells of all chosen tables. A pair that would pass it is left out, and weaker ones may still fit.
    """
    tree_of: dict[int, int] = {column: column for pair in associations for column in pair}
    chosen: list[Pair] = []
    for left, right in sorted(associations, key=lambda pair: (-associations[pair].chi_squared, pair)):
        joined, kept = tree_of[left], tree_of[right]
        if joined != kept and cells[left, right] <= most and associations[left, right].is_worth_noise:
            most -= cells[left, right]
            chosen.append((left, right))
            tree_of = {column: kept if tree == joined else tree for column, tree in tree_of.items()}
    return sorted(chosen)
