"""Other grey pictures, by histograms of edge directions: PneumoniaMNIST, and a folder of a user's own.

What separates invented handwriting says nothing about an X-ray: the features here are `oriented_gradients` alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from private_learning.records import DataError, read_images, read_npz
from research.accuracy.oriented_gradients import oriented_gradients
from research.tables.features import Digits
from wardround.demo.scenarios import DataMissing, data_folder

# Eight directions at 7 × 7 places.
COMPONENTS = 392
SIDE = 28


def pneumonia(*, held_out: bool = False) -> Digits:
    """Training and validation X-rays, judged by the test X-rays; held out: training judged by validation.

    Raises DataMissing.
    """
    path = data_folder() / "pneumoniamnist" / "pneumoniamnist_rebuilt.npz"
    if not path.is_file():
        raise DataMissing(f"{path} is missing: set WARDROUND_DATA to the folder that holds pneumoniamnist/")
    train, judging, test = (read_npz(path, split=split) for split in ("train", "val", "test"))
    if held_out:
        return Digits(edges(train.inputs), _labels(train.labels), edges(judging.inputs), _labels(judging.labels))
    images = np.concatenate([train.inputs, judging.inputs])
    labels = np.concatenate([_labels(train.labels), _labels(judging.labels)])
    return Digits(edges(images), labels, edges(test.inputs), _labels(test.labels))


def own_features(folder: Path) -> Digits:
    """<folder>/train/<class>/<image> and <folder>/test/<class>/<image>, the same classes in both.

    Raises DataError: no such folder, no images, other classes.
    """
    classes = sorted(path.name for path in (folder / "train").glob("*") if path.is_dir())
    train, test = (read_images(folder / part, classes=classes) for part in ("train", "test"))
    return Digits(edges(train.inputs), _labels(train.labels), edges(test.inputs), _labels(test.labels))


def edges(images: NDArray[np.generic]) -> NDArray[np.float32]:
    """(n, height, width) or (n, 3, height, width) of 0..255 to (n, 392) features of norm 1.

    Colours become their mean, sizes 28 × 28. Raises DataError for other shapes.
    """
    if images.ndim not in (3, 4):
        raise DataError(f"images have shape (n, height, width) or (n, 3, height, width), not {images.shape}")
    pixels = torch.from_numpy(np.ascontiguousarray(images)).float()
    grey = pixels if pixels.ndim == 3 else pixels.mean(dim=1)
    small = torch.nn.functional.adaptive_avg_pool2d(grey[:, None], SIDE)[:, 0]
    return oriented_gradients(small).numpy()


def _labels(labels: object) -> NDArray[np.int64]:
    return np.asarray(labels, np.int64).reshape(-1)
