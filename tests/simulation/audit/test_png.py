"""A picture decompresses to its own numbers."""

from __future__ import annotations

import zlib

import numpy as np

from simulation.audit.png import png


def test_a_picture_holds_every_number() -> None:
    drawn = png(np.array([[0.0, 1.0], [0.5, 0.2]]))
    start = drawn.index(b"IDAT") + 4
    lines = np.frombuffer(zlib.decompress(drawn[start:]), np.uint8).reshape(6, 7)
    assert (lines[:, 0] == 0).all()
    assert lines[::3, 1::3].tolist() == [[0, 255], [128, 51]]
