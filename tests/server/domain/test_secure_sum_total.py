from __future__ import annotations

import numpy as np
import pytest

from server.domain.secure_sum_recovery import MaskKeys
from server.domain.secure_sum_total import ReadWords, unmasked
from study_protocol.secure_sum import masking
from study_protocol.secure_sum.vectors import RingVector, VectorSpec, largest_cap

KEYS = [bytes([number]) * 32 for number in range(7)]


def reader(words: RingVector) -> ReadWords:
    def fill(start: int, room: RingVector) -> None:
        room[:] = words[start : start + room.size]

    return fill


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("length", [1, 6, 7, 8, 14, 50_000])
@pytest.mark.parametrize("piece", [7, 1 << 15])
def test_pieces_are_those_of_the_whole_sum(bits: int, length: int, piece: int) -> None:
    """Keystreams go on from piece to piece, and the canary's words come last and alone."""
    spec = VectorSpec(
        name="update", encoding="signed", length=length, ring_bits=bits, scale_bits=4, cap=largest_cap(5, 32)
    )
    random = np.random.default_rng(length)
    clear = [random.integers(0, 1 << 16, spec.words).astype(spec.dtype) for _ in range(5)]
    masked = [words.copy() for words in clear]
    for words, key in zip(masked, KEYS, strict=False):
        masking.apply_masks(words, add=[key])
    # Two keys more that lie on the sum with the other sign.
    masking.apply_masks(masked[0], subtract=KEYS[5:])
    found = [
        part.copy()
        for part in unmasked(spec, [reader(w) for w in masked], MaskKeys(tuple(KEYS[5:]), tuple(KEYS[:5])), piece=piece)
    ]
    total = np.sum(clear, axis=0, dtype=spec.dtype)
    np.testing.assert_array_equal(np.concatenate(found), total)
    assert found[-1].size == spec.words - spec.data_words
    assert max(part.size for part in found) <= max(piece, found[-1].size)
