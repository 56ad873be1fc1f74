"""The noise of several steps of a round, drawn in one go where calls cost more than numbers do.

Noise depends on public numbers and its stream alone, so that it can be drawn before its step. That is done only with
streams that nobody can reproduce: which part of such a stream goes to which step means nothing to anybody. A seeded
study draws every step at its own address, and so the same bytes as ever.

Nothing is kept across rounds, processes or a crash. Every number is handed out once, and zeroed where it waited.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.randomness.discrete_gaussian import CHUNK, DiscreteGaussian
from client_sdk.protocol.randomness.source import RandomSource

Integers = NDArray[np.signedinteger]
Pieces = Iterator[tuple[int, Integers]]


class NoiseAhead:
    """The integers of one law for steps of one size.

    size   numbers in a step
    steps  how many steps may still come: no more is drawn than they need, nor more than CHUNK numbers
    """

    def __init__(self, law: DiscreteGaussian, size: int, steps: int) -> None:
        self._law, self._size, self._left = law, size, steps
        self._ready: Integers = np.empty(0, law.dtype)
        self._owner = os.getpid()

    def of_step(self, source: RandomSource) -> Pieces:
        """The noise of the next step, (start, integers); an array is the caller's until the next is asked for."""
        if not source.secure or not 0 < 2 * self._size <= CHUNK:
            return self._law.chunks(self._size, source)
        return self._from_block(source)

    def _from_block(self, source: RandomSource) -> Pieces:
        # A forked process must not use what its parent uses.
        if len(self._ready) < self._size or self._owner != os.getpid():
            self._owner = os.getpid()
            steps = max(1, min(self._left, CHUNK // self._size))
            self._ready = self._law.drawn(steps * self._size, source)
        self._left -= 1
        taken, self._ready = self._ready[: self._size], self._ready[self._size :]
        yield 0, taken
        taken[:] = 0
