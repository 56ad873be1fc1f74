"""The noise of a round's steps, drawn before it is needed: it depends on public numbers and its stream alone.

Long vectors: where the process has a core to spare, a thread draws while the gradients of the same step are computed.
It reads the stream of the step's own address, so that the thread changes no byte.

Short vectors: calls cost more than numbers do, and the noise of several steps is drawn in one go. That is done only
with streams that cannot be reproduced, where the assignment of the stream's parts to steps has no meaning. A seeded
study draws every step at its own address, and so the same bytes as ever.

No noise is kept across rounds, processes or a crash. Every number is handed out once, and zeroed in its place.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from study_protocol.randomness.discrete_gaussian import CHUNK, DiscreteGaussian
from study_protocol.randomness.source import RandomSource

Integers = NDArray[np.signedinteger]
Pieces = Iterator[tuple[int, Integers]]
# Numbers that a thread draws beside the gradients: with fewer, two threads of short calls hold each other up
# (measured). More, 4 bytes each, are too much to hold.
MIN_THREAD_NUMBERS, MAX_THREAD_NUMBERS = 1 << 20, 1 << 25


class NoiseAhead:
    """The integers of one law for steps of one size.

    size   numbers in a step
    steps  how many steps may still come: no more is drawn than they need, nor more than CHUNK numbers
    """

    def __init__(self, law: DiscreteGaussian, size: int, steps: int) -> None:
        self._law, self._size, self._steps_left = law, size, steps
        self._ready: Integers = np.empty(0, law.dtype)
        self._owner = os.getpid()
        self._in_thread = MIN_THREAD_NUMBERS <= size <= MAX_THREAD_NUMBERS and another_core()

    def of_step(self, source: RandomSource) -> Pieces:
        """Yield the noise of the next step, (start, integers).

        An array is the caller's until the next one is requested.

        Call it before the gradients are computed, so that a thread can draw at the same time.
        """
        if self._in_thread:
            # One for each step, so that between steps no thread is there to be missed in a forked process.
            pool = ThreadPoolExecutor(1, "noise")
            drawing = pool.submit(self._law.sample_compact, self._size, source)
            pool.shutdown(wait=False)
            return _in_pieces(drawing)
        if not source.secure or not 0 < 2 * self._size <= CHUNK:
            return self._law.chunks(self._size, source)
        return self._from_block(source)

    def _from_block(self, source: RandomSource) -> Pieces:
        # A forked process must not use what its parent uses.
        if len(self._ready) < self._size or self._owner != os.getpid():
            self._owner = os.getpid()
            steps = max(1, min(self._steps_left, CHUNK // self._size))
            self._ready = self._law.sample_compact(steps * self._size, source)
        self._steps_left -= 1
        noise, self._ready = self._ready[: self._size], self._ready[self._size :]
        yield 0, noise
        noise[:] = 0


def _in_pieces(drawing: Future[Integers]) -> Pieces:
    """Yield pieces that fit the processor's cache. Raises the error of the drawing."""
    numbers = drawing.result()
    for start in range(0, len(numbers), CHUNK):
        piece = numbers[start : start + CHUNK]
        yield start, piece
        piece[:] = 0


def another_core() -> bool:
    """Return whether this process has a core to spare. Workers of a simulation take one each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and multiprocessing.parent_process() is None
