"""Other pictures: PneumoniaMNIST, a folder of a user's own, and CIFAR-10's files.

What separates invented handwriting says nothing about an X-ray: the features here are `oriented_gradients`, or those of
a frozen network that the user gives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from private_learning.records import DataError, Examples, read_images, read_npz
from private_learning.tasks.program import Program
from research.accuracy.oriented_gradients import oriented_gradients
from research.tables.features import Digits
from wardround.demo.scenarios import DataMissing, data_folder

# Eight directions at 7 × 7 places.
COMPONENTS = 392
SIDE = 28
_AT_ONCE = 64


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


def own_features(folder: Path, program: Path | None = None) -> Digits:
    """<folder>/train/<class>/<image> and <folder>/test/<class>/<image>, the same classes in both; or CIFAR-10's files.

    program: a frozen network as an ONNX graph, as of task `features`. Without one: oriented gradients.

    Raises:
        DataError: no such folder, no images, other classes, damaged files.
        ConfigurationError: a program that is refused, or does not take these images.
    """
    if _is_cifar10(folder):
        train, test = cifar10(folder)
    else:
        classes = sorted(path.name for path in (folder / "train").glob("*") if path.is_dir())
        train, test = (read_images(folder / part, classes=classes) for part in ("train", "test"))
    made = edges if program is None else _through(program, train.inputs.shape[1:])
    return Digits(made(train.inputs), _labels(train.labels), made(test.inputs), _labels(test.labels))


def cifar10(folder: Path) -> tuple[Examples, Examples]:
    """Training and test images (n, 3, 32, 32) of 0..255 out of `cifar-10-batches-bin`, the version in binary form.

    A record is one byte for the class and 3,072 for the pixels: red, green, blue, each row by row.

    Raises DataError: a file is missing or damaged, or the folder holds the version in pickles, which can run code.
    """
    if not (folder / _BINARY[-1]).is_file():
        raise DataError(
            f"{folder.name} holds CIFAR-10 as Python pickles, which can run code when they are read: download "
            "cifar-10-binary.tar.gz and give its folder cifar-10-batches-bin"
        )
    batches = [_batch(folder / name) for name in _BINARY]
    train = [np.concatenate(parts) for parts in zip(*batches[:-1], strict=True)]
    return Examples.of(*train), Examples.of(*batches[-1])


_BINARY = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_RECORD, _CLASSES = 1 + 3 * 32 * 32, 10


def _is_cifar10(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("data_batch_1", *_BINARY))


def _batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not path.is_file():
        raise DataError(f"{path.name} is missing beside the other batches of CIFAR-10")
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % _RECORD:
        raise DataError(f"{path.name} is damaged: {len(content):,} bytes are no whole records of {_RECORD:,}")
    records = content.reshape(-1, _RECORD)
    if records[:, 0].max() >= _CLASSES:
        raise DataError(f"{path.name} is damaged: it has classes that are not 0 to 9")
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _through(program: Path, shape: tuple[int, ...]) -> Callable[[NDArray[np.generic]], NDArray[np.float32]]:
    """Return images -> (n, features) of norm 1, by the frozen network. Grey images get an axis for their channel."""
    if not program.is_file():
        raise DataError(f"there is no file {program.name} in {program.parent.absolute()}")
    sides = shape if len(shape) == 3 else (1, *shape)
    network = Program(program.read_bytes(), sides)

    def made(images: NDArray[np.generic]) -> NDArray[np.float32]:
        parts: list[NDArray[np.float32]] = []
        for rows in np.array_split(images, len(images) // _AT_ONCE + 1):
            pixels = torch.from_numpy(np.ascontiguousarray(rows)).float().reshape(-1, *sides)
            features = network(pixels).flatten(1).double()
            parts.append((features / features.norm(dim=1, keepdim=True).clamp_min(1e-30)).float().numpy())
        return np.concatenate(parts)

    return made


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
