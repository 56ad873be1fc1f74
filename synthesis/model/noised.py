"""The noised tables that a model of records is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from synthesis.model.arithmetic import Floats, Integers

Pair = tuple[int, int]
"""Numbers of two columns, rising, without the outcome."""


@dataclass(frozen=True)
class NoisedTable:
    """counts: (cells or groups of each column …, outcomes). std: of the noise in one cell."""

    counts: Floats
    std: float

    @property
    def variance(self) -> float:
        # A product: a power is not rounded the same way by every library.
        return self.std * self.std

    @property
    def precision(self) -> float:
        return 1 / self.variance


@dataclass(frozen=True)
class Noised:
    """sizes: cells of each column. groups: column -> the group of each cell, where pairs have groups.

    columns: each other column by outcome. pairs: by groups and outcome. edges: of a forest, by cells and outcome.
    shrinks: whether estimates are drawn towards what is expected, see `synthesis/model/fit.py`.
    """

    sizes: tuple[int, ...]
    outcome: int
    groups: Mapping[int, Integers]
    columns: Mapping[int, NoisedTable]
    pairs: Mapping[Pair, NoisedTable]
    edges: Mapping[Pair, NoisedTable]
    shrinks: bool = True

    def __post_init__(self) -> None:
        # Sums of floats depend on their order: equal tables give equal records in whichever order they were read.
        for name in ("groups", "columns", "pairs", "edges"):
            object.__setattr__(self, name, dict(sorted(getattr(self, name).items())))

    @property
    def others(self) -> tuple[int, ...]:
        """Return the numbers of all columns but the outcome."""
        return tuple(number for number in range(len(self.sizes)) if number != self.outcome)

    def groups_of(self, column: int) -> Integers:
        groups = self.groups.get(column)
        return np.arange(self.sizes[column], dtype=np.int64) if groups is None else groups


def pooled(tables: list[NoisedTable]) -> NoisedTable:
    """Return the mean of tables of the same cells, weighted by precision."""
    precision = sum(table.precision for table in tables)
    counts = tables[0].counts * (tables[0].precision / precision)
    for table in tables[1:]:
        counts = counts + table.counts * (table.precision / precision)
    return NoisedTable(counts, float(np.sqrt(1 / precision)))
