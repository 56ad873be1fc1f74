"""Examples from files of arrays: .npz, MedMNIST's among them, and the IDX files of MNIST."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Literal

import numpy as np

from client_sdk.data.records import Array, DataError, Examples

Split = Literal["train", "val", "test"]
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_npz(path: Path, *, split: Split = "train") -> Examples:
    """Examples from an .npz file. Never unpickles.

    Either the arrays `inputs`, `labels` and, if it is there, `patients`; or those of MedMNIST (Yang et al. 2023),
    <split>_images and <split>_labels, colours brought to the front.

    Raises:
        DataError: arrays are missing, or a record has several labels.
    """
    with np.load(path, allow_pickle=False) as arrays:
        if f"{split}_images" in arrays.files:
            images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
            if labels.size != len(labels):
                raise DataError(f"{path.name}: several labels for one record; one is expected")
            coloured = images.ndim == 4 and images.shape[-1] == 3
            return Examples.of(np.moveaxis(images, -1, 1) if coloured else images, labels.reshape(-1))
        lacking = {"inputs", "labels"} - set(arrays.files)
        if lacking:
            raise DataError(f"{path.name}: the arrays {sorted(lacking)} are missing")
        return Examples.of(
            arrays["inputs"], arrays["labels"], arrays["patients"] if "patients" in arrays.files else None
        )


def read_idx(path: Path) -> Array:
    """An IDX array, gzipped or not (LeCun, Cortes, Burges: the format of MNIST).

    Raises:
        DataError: not IDX, or shorter or longer than its header says.
    """
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{path.name}: not an IDX file")
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    dtype = np.dtype(_IDX_TYPES[data[2]])
    if len(data) != 4 + 4 * data[3] + int(np.prod(shape)) * dtype.itemsize:
        raise DataError(f"{path.name}: the length does not fit the header")
    return np.frombuffer(data, dtype=dtype, offset=4 + 4 * data[3]).reshape(shape).astype(dtype.newbyteorder("="))
