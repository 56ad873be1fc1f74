"""MNIST for the figures that need gradients."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from private_learning.records import read_idx
from wardround.demo.scenarios import DataMissing, data_folder

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@lru_cache(maxsize=2)
def digits(part: str) -> tuple[Images, Labels]:
    """(images (n, 28, 28) of 0 … 1, labels) of "train" or "t10k".

    Raises:
        DataMissing: the files are not there.
    """
    folder = data_folder() / "mnist"
    names = [folder / f"{part}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    if not all(name.is_file() for name in names):
        raise DataMissing(f"{names[0]} is missing: set WARDROUND_DATA to the folder that holds mnist/")
    images, labels = (read_idx(name) for name in names)
    return (images / 255).astype(np.float32), labels.astype(np.int64)
