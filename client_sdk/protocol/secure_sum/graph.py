"""Who shares secrets and masks with whom in one session.

With k >= |U1| - 1 neighbours everybody does with everybody. Else the members of U1 lie on a ring, in the order of
SHA-256 over (label, H1, name), and each has the k/2 before and the k/2 behind it for neighbours, k even. Whoever knows
H1, the names and k computes the same graph; nothing of it travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.secure_sum.transcript import ring_place


class Graph:
    """The neighbourhoods of one session's members.

    members  U1, in the order of the names: a member's *place* is its index here, counted from 0
    """

    def __init__(self, h1: bytes, members: Sequence[str], neighbours: int) -> None:
        """`neighbours` is k of the signed parameters: even, unless it is enough for everybody to know everybody."""
        self.members = tuple(members)
        self._reach = neighbours // 2
        self.is_complete = neighbours >= len(self.members) - 1
        self._h1 = h1
        self._holders: dict[str, tuple[str, ...]] = {}

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
        """Who holds a share of the owner's secrets, in the order of the names: its neighbours and itself."""
        if self.is_complete:
            return self.members
        if owner not in self._holders:
            around = np.sort(self._around(self.places[owner]))
            self._holders[owner] = tuple(self.members[int(place)] for place in around)
        return self._holders[owner]

    def neighbours(self, client: str) -> tuple[str, ...]:
        """With whom a member exchanges shares and masks, in the order of the names."""
        return tuple(name for name in self.holders(client) if name != client)

    def mask(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """By place, whether a member is among `names`; shape (|U1|,). Raises KeyError for a stranger."""
        found = np.zeros(len(self.members), dtype=np.bool_)
        found[[self.places[name] for name in names]] = True
        return found

    def holders_among(self, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        """By place, how many holders of that member's secrets are chosen; both of shape (|U1|,)."""
        if self.is_complete:
            return np.full(chosen.size, int(chosen.sum()), dtype=np.intp)
        found = np.empty(chosen.size, dtype=np.intp)
        found[self.ring] = self._windows(chosen, -self._reach, 2 * self._reach + 1)
        return found

    @cached_property
    def adjacency(self) -> NDArray[np.bool_]:
        """[holder, owner] by place: who holds a share of whose secrets. Symmetric, True on the diagonal."""
        size = len(self.members)
        if self.is_complete:
            return np.ones((size, size), dtype=np.bool_)
        found = np.zeros((size, size), dtype=np.bool_)
        for step in range(-self._reach, self._reach + 1):
            found[self.ring, np.roll(self.ring, step)] = True
        return found

    def is_tied(self, survivors: NDArray[np.bool_], colluders: int) -> bool:
        """Whether no `colluders` of the survivors can split the others into parts that share no mask.

        survivors  by place, as `mask` makes it

        Among any k/2 that follow each other on the ring more than colluders/2 survive. Proof: let two honest survivors
        be in different parts. Walk the ring from one to the other in either direction: on each way there are two
        honest survivors, next to each other among the honest survivors, that are no neighbours, so that at least k/2
        members lie between them, none of them an honest survivor. Each of these two runs has more than colluders/2
        survivors, all of them colluders, and the runs have no member in common: more than `colluders` collude.
        In the complete graph all are neighbours.
        """
        if self.is_complete:
            return True
        return 2 * int(self._windows(survivors, 0, self._reach).min()) > colluders

    def _around(self, place: int) -> NDArray[np.intp]:
        steps = np.arange(-self._reach, self._reach + 1)
        return self.ring[(self._positions[place] + steps) % len(self.members)]

    @cached_property
    def _positions(self) -> NDArray[np.intp]:
        # Inverse of `ring`.
        found = np.empty_like(self.ring)
        found[self.ring] = np.arange(self.ring.size)
        return found

    def _windows(self, chosen: NDArray[np.bool_], first: int, length: int) -> NDArray[np.intp]:
        """By position on the ring, how many are chosen of the `length` members from `first` steps further on."""
        size = chosen.size
        along = np.concatenate([[0], np.cumsum(np.tile(chosen[self.ring], 2))])
        starts = (np.arange(size) + first) % size
        return along[starts + length] - along[starts]


@lru_cache(maxsize=16)
def graph_of(h1: bytes, members: tuple[str, ...], neighbours: int) -> Graph:
    """The graph of a session; the same object for the same session, because every message asks for it."""
    return Graph(h1, members, neighbours)
