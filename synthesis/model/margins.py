"""Each column by outcome, from all tables that hold it: least squares, and then no negative count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from synthesis.model.arithmetic import Floats, divided, gathered, on_simplex, summed, total_of
from synthesis.model.fit import Crossed, fitted
from synthesis.model.noised import Noised, NoisedTable, Pair


@dataclass(frozen=True)
class Margins:
    """outcomes: (outcomes,) patients. columns: column -> (cells, outcomes) patients, each with these sums."""

    outcomes: Floats
    columns: Mapping[int, Floats]

    @property
    def patients(self) -> float:
        return total_of(self.outcomes)


def margins_of(noised: Noised) -> Margins:
    """Return the estimate of each column by outcome: cells' totals first, and then outcomes within them."""
    raw = {column: _least_squares(noised, column) for column in noised.others}
    outcomes = _outcomes(noised, {column: counts for column, (counts, _) in raw.items()})
    fits = {column: _by_outcome(counts, std, outcomes, noised.shrinks) for column, (counts, std) in raw.items()}
    return Margins(outcomes, fits)


def _by_outcome(counts: Floats, std: float, outcomes: Floats, shrinks: bool) -> Floats:
    """Return one column's table without negative counts, shape (cells, outcomes)."""
    live = outcomes > 0
    totals = sum((on_simplex(counts[:, y], float(outcomes[y])) for y in np.flatnonzero(live)), np.zeros(len(counts)))
    table = Crossed(
        counts[None, :, live, None],
        np.zeros((1, len(totals), int(live.sum()), 1)),
        totals[None, :, None],
        outcomes[None, live, None],
        np.array([float(len(totals))]),
        np.array([float(live.sum())]),
        np.array([std]),
    )
    estimate = np.zeros_like(counts)
    estimate[:, live] = fitted(table, shrinks=shrinks)[0, :, :, 0]
    return estimate


def _outcomes(noised: Noised, raw: Mapping[int, Floats]) -> Floats:
    """Return patients by outcome: each column says them, the fewer cells the better."""
    weights = {column: 1 / noised.sizes[column] for column in raw}
    scale = total_of(np.array(list(weights.values())))
    sums = np.zeros(noised.sizes[noised.outcome])
    for column, counts in raw.items():
        sums = sums + summed(counts, 0) * (weights[column] / scale)
    return on_simplex(sums, max(total_of(sums), 1.0))


def _least_squares(noised: Noised, column: int) -> tuple[Floats, float]:
    """Return one column by outcome from every table that holds it, and about the standard error of a count."""
    own_table = noised.columns[column]
    counts, precision = own_table.counts * own_table.precision, own_table.precision
    for sums, variance in _sums(noised.edges, column):
        counts, precision = counts + sums / variance, precision + 1 / variance
    counts = counts / precision
    groups = noised.groups_of(column)
    heard = np.zeros((int(groups.max()) + 1, counts.shape[1]))
    heard_precision = 0.0
    for sums, variance in _sums(noised.pairs, column):
        heard, heard_precision = heard + sums / variance, heard_precision + 1 / variance
    if not heard_precision:
        return counts, float(np.sqrt(1 / precision))
    coarse, cells = gathered(counts, groups), np.bincount(groups).astype(np.float64)[:, None]
    own_precision = precision / cells
    better = (coarse * own_precision + heard) / (own_precision + heard_precision)
    spread = (1 - 1 / cells) / precision + 1 / ((own_precision + heard_precision) * (cells * cells))
    return counts + ((better - coarse) / cells)[groups], float(np.sqrt(total_of(spread * cells) / len(groups)))


def _sums(tables: Mapping[Pair, NoisedTable], column: int) -> list[tuple[Floats, float]]:
    """Return this column by outcome from each pair with it, and the variance of one count."""
    sums: list[tuple[Floats, float]] = []
    for pair, table in tables.items():
        if column in pair:
            axis = 1 - pair.index(column)
            sums.append((summed(table.counts, axis), table.variance * table.counts.shape[axis]))
    return sums


def shares_of(counts: Floats) -> Floats:
    """Return each outcome's distribution over the cells, shape (cells, outcomes). An empty one is all zeros."""
    return divided(counts, np.broadcast_to(summed(counts, 0), counts.shape))
