"""The graph of one session: the pairs of clients that share secrets and masks.

With k >= |U1| - 1 neighbours all clients share with all others. Otherwise the members of U1 lie on a ring, in the order
of SHA-256 over (label, H1, name). The neighbours of each are the k/2 before it and the k/2 behind it, k even. A party
that knows H1, the names and k computes the same graph, so that it need not travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from study_protocol.secure_sum.transcript import ring_place


class Graph:
    """The neighbourhoods of one session's members.

    members  U1, in the order of the names: a member's *place* is its index here, counted from 0
    """

    def __init__(self, h1: bytes, members: Sequence[str], neighbours: int) -> None:
        """Make the graph. `neighbours` is k of the signed parameters: even, unless all clients are neighbours."""
        self.members = tuple(members)
        self._reach = neighbours // 2
        self.is_complete = neighbours >= len(self.members) - 1
        self._h1 = h1
        self._holders: dict[str, tuple[str, ...]] = {}
        self._around: dict[str, NDArray[np.intp]] = {}

    @cached_property
    def places(self) -> dict[str, int]:
        """Place of each member."""
        return {name: place for place, name in enumerate(self.members)}

    @cached_property
    def ring(self) -> NDArray[np.intp]:
        """Places of the members in the order of the ring, shape (|U1|,)."""
        order = sorted((ring_place(self._h1, name), place) for place, name in enumerate(self.members))
        return np.array([place for _, place in order], dtype=np.intp)

    def holders(self, owner: str) -> tuple[str, ...]:
        """Return the holders of a share of the owner's secrets by name: its neighbours and itself."""
        if self.is_complete:
            return self.members
        if owner not in self._holders:
            self._holders[owner] = tuple(self.members[int(place)] for place in self.holders_at(owner))
        return self._holders[owner]

    def holders_at(self, owner: str) -> NDArray[np.intp]:
        """Return the places of the owner's `holders`, ascending."""
        if self.is_complete:
            return np.arange(len(self.members))
        if owner not in self._around:
            steps = np.arange(-self._reach, self._reach + 1)
            self._around[owner] = np.sort(self.ring[(self._positions[self.places[owner]] + steps) % self.ring.size])
        return self._around[owner]

    def neighbours(self, client: str) -> tuple[str, ...]:
        """Return the members with whom a member exchanges shares and masks, in the order of the names."""
        return tuple(name for name in self.holders(client) if name != client)

    def mask(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return by place whether a member is among `names`, shape (|U1|,). Raises KeyError for a stranger."""
        membership = np.zeros(len(self.members), dtype=np.bool_)
        membership[[self.places[name] for name in names]] = True
        return membership

    def holders_among(self, holders: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return by place how many of `holders` hold that member's secrets. Both have shape (|U1|,)."""
        if self.is_complete:
            return np.full(holders.size, int(holders.sum()), dtype=np.intp)
        counts = np.empty(holders.size, dtype=np.intp)
        counts[self.ring] = self._windows(holders, -self._reach, 2 * self._reach + 1)
        return counts

    def can_open(self, owners: NDArray[np.bool_], present: NDArray[np.bool_], threshold: int) -> bool:
        """Return whether `threshold` holders of each owner's secrets are present.

        Both arrays are as `mask` makes them.
        """
        return bool((self.holders_among(present)[owners] >= threshold).all())

    @cached_property
    def adjacency(self) -> NDArray[np.bool_]:
        """[holder, owner] by place: who holds a share of whose secrets. Symmetric, True on the diagonal."""
        size = len(self.members)
        if self.is_complete:
            return np.ones((size, size), dtype=np.bool_)
        matrix = np.zeros((size, size), dtype=np.bool_)
        for step in range(-self._reach, self._reach + 1):
            matrix[self.ring, np.roll(self.ring, step)] = True
        return matrix

    def is_tied(self, survivors: NDArray[np.bool_], colluders: int) -> bool:
        """Return whether no `colluders` of the survivors can split the others into parts that share no mask.

        Among any k/2 that follow each other on the ring more than colluders/2 survive. To part two honest survivors,
        two such runs without an honest survivor would be needed. They would hold more than `colluders` colluders
        (docs/threat-model.md, argument 3). In the complete graph all are neighbours.

        Args:
            survivors: by place, as `mask` makes it.
        """
        if self.is_complete:
            return True
        return 2 * int(self._windows(survivors, 0, self._reach).min()) > colluders

    @cached_property
    def _positions(self) -> NDArray[np.intp]:
        # Inverse of `ring`.
        positions = np.empty_like(self.ring)
        positions[self.ring] = np.arange(self.ring.size)
        return positions

    def _windows(self, members: NDArray[np.bool_], first: int, length: int) -> NDArray[np.intp]:
        """Return, by position on the ring, how many members are among the `length` from `first` steps further on."""
        size = members.size
        along = np.concatenate([[0], np.cumsum(np.tile(members[self.ring], 2))])
        starts = (np.arange(size) + first) % size
        return along[starts + length] - along[starts]


@lru_cache(maxsize=16)
def graph_of(h1: bytes, members: tuple[str, ...], neighbours: int) -> Graph:
    """Return the graph of a session. It is the same object for the same session, because every message asks for it."""
    return Graph(h1, members, neighbours)
