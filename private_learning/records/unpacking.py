"""Arrays as numpy.save writes them, never more than there is."""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np

from private_learning.records.records import Array


def array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and type of an array as numpy.save writes it. Its data follow.

    Raises:
        ValueError: there is no such header, or rows take no bytes, so that any number of them would fit.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(file)
    except (OSError, EOFError):
        raise
    # The header is parsed as Python, and the parser may raise any error.
    except Exception as error:
        raise ValueError("no header of an array") from error
    if any(isinstance(side, bool) or side < 0 for side in shape) or 0 in shape[1:] or dtype.itemsize == 0:
        raise ValueError("an array without data")
    return shape, fortran, dtype


def read_array(file: IO[bytes], size: int) -> Array:
    """Return one array as numpy.save writes it. size: bytes of the whole file, unpacked. Never unpickles.

    Raises:
        ValueError: it is no such array, or its header promises more than there is.
    """
    start = file.tell()
    shape, fortran, dtype = array_header(file)
    count = math.prod(shape)
    if dtype.hasobject or count * dtype.itemsize > size - (file.tell() - start):
        raise ValueError("not a whole plain array")
    data = file.read(count * dtype.itemsize)
    return np.frombuffer(bytearray(data), dtype).reshape(shape, order="F" if fortran else "C")
