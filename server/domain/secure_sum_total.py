"""One vector's sum out of the masked vectors of the survivors, piece by piece: masks off as the pieces are added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from server.domain.secure_sum_recovery import MaskKeys
from study_protocol.secure_sum import masking
from study_protocol.secure_sum.vectors import RingVector, VectorSpec, aligned

ReadWords = Callable[[int, RingVector], None]
"""Fill the given vector with the words that begin at this place of one client's masked vector."""
# Words of a piece: at most 4 MiB, and as much for what is read.
_PIECE = 1 << 19


def unmasked(
    spec: VectorSpec, vectors: Sequence[ReadWords], keys: MaskKeys, *, piece: int = _PIECE
) -> Iterator[RingVector]:
    """Return the words of the sum in order: data in pieces of at most `piece` words, and the canary's as the last
    piece.

    Memory: two pieces, for vectors of any length and any number of clients. A piece is used again for the next.
    """
    masks = masking.Masks(add=keys.add, subtract=keys.subtract)
    total, read = aligned(piece, spec.dtype), aligned(piece, spec.dtype)
    starts = [*range(0, spec.data_words, piece), spec.data_words]
    for start, stop in zip(starts, [*starts[1:], spec.words], strict=True):
        part, room = total[: stop - start], read[: stop - start]
        # `aligned` does not clear.
        part[:] = 0
        for fill in vectors:
            fill(start, room)
            np.add(part, room, out=part)
        masks.apply(part)
        yield part
