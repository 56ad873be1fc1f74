"""The pairs that are worth their own noise: a maximum spanning forest of noise-corrected χ², in whole numbers."""

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
    """chi_squared: beyond what noise adds. variance: of it where columns do not depend on each other."""

    chi_squared: int
    variance: int

    @property
    def is_worth_noise(self) -> bool:
        return self.chi_squared > 0 and self.chi_squared**2 > _LEAST_ERRORS**2 * self.variance


def association(table: Whole, left: Whole, right: Whole, outcomes: Sequence[int], std: int) -> Association:
    """Return how far one pair's noised table lies from independence within each outcome.

    Args:
        table: (groups, groups, outcomes). It and all others are in one unit.
        left: (groups, outcomes), of the first column, from other noise.
        right: the same of the second.
        outcomes: patients of each outcome. One without patients counts for nothing.
        std: of the noise in one cell of the table.
    """
    chi_squared = variance = 0
    for outcome, patients in enumerate(outcomes):
        if patients <= 0:
            continue
        expected = np.multiply.outer(np.maximum(left[:, outcome], 0), np.maximum(right[:, outcome], 0)) // patients
        least = np.maximum(expected, std)
        chi_squared += int((((table[:, :, outcome] - expected) ** 2 - std**2) // least).sum())
        variance += int((2 * std**4 // least**2).sum())
    return Association(chi_squared, variance)


def spanning_forest(associations: Mapping[Pair, Association], cells: Mapping[Pair, int], most: int) -> list[Pair]:
    """Return the pairs of a maximum spanning forest (Kruskal 1956), of those worth their noise, in rising order.

    cells: of each pair's table. A pair is passed over if its table would bring all of them above `most`.
    """
    tree_of: dict[int, int] = {column: column for pair in associations for column in pair}
    chosen: list[Pair] = []
    for left, right in sorted(associations, key=lambda pair: (-associations[pair].chi_squared, pair)):
        joined, kept = tree_of[left], tree_of[right]
        fits = joined != kept and cells[left, right] <= most
        if fits and associations[left, right].is_worth_noise:
            chosen.append((left, right))
            most -= cells[left, right]
            tree_of = {column: kept if tree == joined else tree for column, tree in tree_of.items()}
    return sorted(chosen)
