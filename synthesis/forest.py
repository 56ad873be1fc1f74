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


def association(
    table: Whole, first_column: Column, second_column: Column, outcomes: Sequence[int], std: int, unit: int
) -> Association:
    """Return how far one pair's noised table lies from independence within each outcome.

    Subtracted is what independent columns give on average: the noise of the table, that of the columns in the expected
    counts, and that patients vary, by E·(1 - p)·(1 - q) where p and q are the shares of the two columns' groups.

    Args:
        table: (groups, groups, outcomes).
        first_column: of the pair.
        second_column: of the pair.
        outcomes: patients of each outcome. One without patients counts for nothing.
        std: of the noise in one cell of the table.
        unit: what one patient counts for, in all of them.
    """
    chi_squared = variance = 0
    noises = [np.array(column.variances, object) for column in (first_column, second_column)]
    for outcome, patients in enumerate(outcomes):
        if patients <= 0:
            continue
        first_counts, second_counts = (
            np.maximum(column.counts[:, outcome], 0) for column in (first_column, second_column)
        )
        expected = np.multiply.outer(first_counts, second_counts) // patients
        complements = np.multiply.outer(np.maximum(patients - first_counts, 0), np.maximum(patients - second_counts, 0))
        columns = np.multiply.outer(noises[0], second_counts**2) + np.multiply.outer(first_counts**2, noises[1])
        spread = std**2 + expected * unit * complements // patients**2 + columns // patients**2
        floor = np.maximum(expected, std)
        chi_squared += int((((table[:, :, outcome] - expected) ** 2 - spread) // floor).sum())
        variance += int((2 * spread**2 // floor**2).sum())
    return Association(chi_squared, variance)


def spanning_forest(associations: Mapping[Pair, Association], cells: Mapping[Pair, int], budget: int) -> list[Pair]:
    """Return the pairs of a maximum spanning forest (Kruskal 1956), of those worth their noise, in rising order.

    Args:
        associations: of all pairs.
        cells: of their tables.
        budget: cells of all chosen tables. A pair that would pass it is left out, and weaker ones may still fit.
    """
    tree_of: dict[int, int] = {column: column for pair in associations for column in pair}
    pairs: list[Pair] = []
    for first_column, second_column in sorted(associations, key=lambda pair: (-associations[pair].chi_squared, pair)):
        first_tree, second_tree = tree_of[first_column], tree_of[second_column]
        if (
            first_tree != second_tree
            and cells[first_column, second_column] <= budget
            and associations[first_column, second_column].is_worth_noise
        ):
            budget -= cells[first_column, second_column]
            pairs.append((first_column, second_column))
            tree_of = {column: second_tree if tree == first_tree else tree for column, tree in tree_of.items()}
    return sorted(pairs)
