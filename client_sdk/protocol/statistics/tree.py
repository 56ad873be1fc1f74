"""Counts in bins, and in groups of neighbouring bins: sums of many bins are then as exact as those of a few.

Noise of one standard deviation is on every node. Least squares makes the levels agree; since every node is the sum of
its children, one pass up and one down is exact (Hay, Rastogi, Miklau, Suciu 2010, here for any number of children).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.statistics.counting import Floats

BRANCHES = 4
# Up to so many bins a level above them would cost more than it gives.
FLAT = 8


@dataclass(frozen=True)
class Tree:
    """Levels over `leaves` bins: every one has a fourth of the nodes below it, up to one of at most `flat` nodes.

    A patient is counted in one node of every level: Δ = √levels. With at most `flat` leaves: the leaves alone.
    """

    leaves: int
    flat: int = FLAT

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of every level, leaves first."""
        sizes = [self.leaves]
        while sizes[-1] > self.flat:
            sizes.append(-(-sizes[-1] // BRANCHES))
        return tuple(sizes)

    @property
    def levels(self) -> int:
        return len(self.sizes)

    @property
    def nodes(self) -> int:
        return sum(self.sizes)

    def grown(self, leaves: NDArray[np.int64]) -> NDArray[np.int64]:
        """(..., leaves) counts to (..., nodes), level by level, leaves first."""
        levels = [leaves]
        for size in self.sizes[:-1]:
            levels.append(np.add.reduceat(levels[-1], np.arange(0, size, BRANCHES), axis=-1))
        return np.concatenate(levels, axis=-1)

    def fitted(self, nodes: Floats) -> Floats:
        """(..., nodes) noised to (..., leaves): the least squares estimate from all levels. Linear, unbiased."""
        levels = np.split(nodes, np.cumsum(self.sizes)[:-1], axis=-1)
        # Up: what a node and all below it say of its count, and the variance of that.
        best, variances = [levels[0]], [np.ones(self.leaves)]
        sums: list[Floats] = []
        spreads: list[Floats] = []
        for size, own in zip(self.sizes[:-1], levels[1:], strict=True):
            first = np.arange(0, size, BRANCHES)
            sums.append(np.add.reduceat(best[-1], first, axis=-1))
            spreads.append(np.add.reduceat(variances[-1], first))
            variances.append(spreads[-1] / (1 + spreads[-1]))
            best.append(sums[-1] + (own - sums[-1]) * variances[-1])
        # Down: what is left over goes to the children in proportion to their variances.
        found = best[-1]
        lower = zip(best[:-1], variances[:-1], sums, spreads, strict=True)
        for below, variance, total, spread in reversed(list(lower)):
            parent = np.arange(len(variance)) // BRANCHES
            found = below + ((found - total) / spread)[..., parent] * variance
        return found

    def covariance(self) -> Floats:
        """(leaves, leaves) of what is fitted, where the noise in every node has variance 1."""
        applied = self.fitted(np.eye(self.nodes))
        return applied.T @ applied
