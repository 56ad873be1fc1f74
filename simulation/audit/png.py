"""Small grey pictures as PNG, without a library of images (W3C, "Portable Network Graphics", third edition)."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_PIXELS = 3


def png(grey: NDArray[np.float64]) -> bytes:
    """Return a PNG of (height, width) numbers from 0, black, to 1, each a square of pixels."""
    levels = np.kron(np.rint(255 * grey).astype(np.uint8), np.ones((_PIXELS, _PIXELS), np.uint8))
    height, width = levels.shape
    # Every line begins with its filter, 0: none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), levels], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
