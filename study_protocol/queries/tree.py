"""A row of leaves, counted at several levels: exact least squares over all counts, and the errors of its sums.

One patient is in one node of every level. Sums of neighbouring leaves need few nodes, so that their noise grows with
the logarithm of the leaves and not with their number. Hay, Rastogi, Miklau, Suciu 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_LEAVES = 4096
# Leaves up to here -> levels. One patient changes a number in each level, so that for equal privacy the variance of the
# noise grows with the levels. In the variance of Σ_{leaves < i} - i/leaves · Σ, averaged over i, these lie within 7 %
# of the best number of levels at every size from 33 on. A branching of 2, 4, 8 or 16 everywhere lies up to 75, 34, 45
# or 70 % above it. A flat row is up to 27 % above it at 32 leaves, and the best below 20.
_LEVELS = ((32, 1), (100, 2), (700, 3), (MAX_LEAVES, 4))


@dataclass(frozen=True)
class SumErrors:
    """Errors of sums in units of one count's variance.

    Attributes:
        starts: (leaves + 1,) of the sum of the leaves before each edge.
        total: of the sum of all.
        leaves: (leaves,) of each leaf.
        with_total: (leaves + 1,) covariances of `starts` with the sum of all.
    """

    leaves: Floats
    starts: Floats
    with_total: Floats
    total: float


@dataclass(frozen=True)
class Tree:
    """A tree over `leaves` leaves. Rows of at most `flat` leaves are one level."""

    leaves: int
    flat: int = 32

    @property
    def levels(self) -> int:
        """The root is none of them: the sum of the top level says the same, and it would cost as much as a level."""
        if self.leaves <= self.flat:
            return 1
        return max(2, next(levels for max_leaves, levels in _LEVELS if self.leaves <= max_leaves))

    @property
    def branching(self) -> int:
        """The least number of children with which so many levels have enough leaves."""
        return next(k for k in range(1, self.leaves + 1) if k**self.levels >= self.leaves)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each level, the top one first. A level's last node may have fewer children."""
        widths = (self.branching**below for below in reversed(range(self.levels)))
        return tuple(-(-self.leaves // width) for width in widths)

    def count(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return patients in every node, of patients in these leaves, shape (nodes,)."""
        return self.grown(np.bincount(places, minlength=self.leaves).astype(np.int64))

    def grown(self, leaves: NDArray[Any]) -> NDArray[Any]:
        """Return counts of all nodes: (…, leaves) to (…, nodes), levels one after another, the top one first."""
        levels = [leaves]
        for _ in self.sizes[1:]:
            levels.insert(0, np.add.reduceat(levels[0], self._firsts(levels[0].shape[-1]), axis=-1))
        return np.concatenate(levels, axis=-1)

    def least_squares(self, nodes: Floats) -> Floats:
        """Return the leaves that fit all nodes best, linear in them: (…, nodes) to (…, leaves).

        Going up, a node and the sum of its children are each weighted by variance. Going down, the difference between a
        node and its children is shared out by the children's variances.
        """
        levels = np.split(nodes, np.cumsum(self.sizes)[:-1], axis=-1)
        spreads = self._spreads()
        best = [levels[-1]]
        for counts, below in zip(levels[-2::-1], spreads[:0:-1], strict=True):
            firsts = self._firsts(len(below))
            children, spread = np.add.reduceat(best[0], firsts, axis=-1), np.add.reduceat(below, firsts)
            best.insert(0, (counts * spread + children) / (1 + spread))
        fitted = best[0]
        for children, spread in zip(best[1:], spreads[1:], strict=True):
            firsts, parents = self._firsts(len(spread)), self._parents(len(spread))
            missing = fitted - np.add.reduceat(children, firsts, axis=-1)
            fitted = children + (spread / np.add.reduceat(spread, firsts)[parents]) * missing[..., parents]
        return fitted

    def covariance(self) -> Floats:
        """Return the covariance of `least_squares` if every node has noise of variance 1, for few leaves.

        The shape is (leaves, leaves).
        """
        applied = self.least_squares(np.eye(sum(self.sizes)))
        return applied.T @ applied

    def errors(self) -> SumErrors:
        """Return the errors of `least_squares` if every node has noise of variance 1.

        A child is its share w of its parent x plus a rest, and no rest is correlated with any node above it. So
        variances of nodes, of sums before them, and their covariances go down level by level.
        """
        spreads = self._spreads()
        node = of_total = spreads[0]
        before = before_total = np.cumsum(node) - node
        covariance = np.zeros(len(node))
        for spread in spreads[1:]:
            firsts, up = self._firsts(len(spread)), self._parents(len(spread))
            whole = np.add.reduceat(spread, firsts)[up]
            running = np.cumsum(spread) - spread
            smaller = running - running[firsts][up]
            share, part = spread / whole, smaller / whole
            before = before[up] + 2 * part * covariance[up] + part**2 * node[up] + smaller * (1 - part)
            covariance = share * covariance[up] + share * part * node[up] - smaller * share
            node = share**2 * node[up] + spread * (1 - share)
            before_total, of_total = before_total[up] + part * of_total[up], share * of_total[up]
        total = float(spreads[0].sum())
        return SumErrors(node, np.append(before, total), np.append(before_total, total), total)

    def _spreads(self) -> list[Floats]:
        """Return the variance of every node by its own count and all below, level by level, the top one first."""
        spreads = [np.ones(self.leaves)]
        for _ in self.sizes[1:]:
            below = np.add.reduceat(spreads[0], self._firsts(len(spreads[0])))
            spreads.insert(0, below / (1 + below))
        return spreads

    def _firsts(self, nodes: int) -> NDArray[np.int64]:
        """Return the first child of each, shape (parents,)."""
        return np.arange(0, nodes, self.branching)

    def _parents(self, nodes: int) -> NDArray[np.int64]:
        return np.arange(nodes) // self.branching
