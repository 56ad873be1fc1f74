"""The images of `research.accuracy.transfer`, and the public networks that their studies begin with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from private_learning.records import Examples, read_idx, read_npz
from private_learning.tasks import TaskDataset, load
from research.tables.strokes import handwriting
from simulation.baselines import BATCH
from wardround.demo.scenarios import DataMissing, data_folder

HOSPITALS = 4
_FILTERS, _HIDDEN = 16, 64
_EPOCHS, _PUBLIC_SEED = 3, 5
# Of MNIST's training images: so many belong to the hospitals, the next ones judge settings.
_DIGITS, _JUDGING = 6000, 4000


@dataclass(frozen=True)
class TransferRecords:
    """What the hospitals have, what settings are judged by, and what the result is reported on."""

    train: Examples
    validation: Examples
    test: Examples


@dataclass(frozen=True)
class TransferCase:
    """One comparison: private records, and public images of another kind with the labels a network learns from."""

    about: str
    classes: int
    public_classes: int
    records: Callable[[], TransferRecords]
    public: Callable[[], Examples]

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the task cnn, for the hospitals' images."""
        return _parameters(self.classes)

    @property
    def edges(self) -> dict[str, Any]:
        """Of the task features, on histograms of edge directions of the same images."""
        return {
            "module": "oriented-gradients",
            "shape": "1x28x28",
            "features": 392,
            "classes": self.classes,
            "bound": 1.0,
        }


def _parameters(classes: int) -> dict[str, Any]:
    return {"height": 28, "width": 28, "classes": classes, "filters": _FILTERS, "hidden": _HIDDEN}


def public_network(case: TransferCase, folder: Path) -> tuple[Path, str]:
    """A network of the task cnn, trained on the public images without noise: its file, and the file's SHA-256."""
    task = load("cnn", _parameters(case.public_classes))
    dataset = task.dataset(case.public())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_PUBLIC_SEED)
        model = task.model()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.002)
        for _ in range(_EPOCHS * len(dataset) // BATCH):
            rows = torch.randint(len(dataset), (BATCH,))
            optimiser.zero_grad()
            task.loss(model(dataset.inputs[rows]), dataset.targets[rows]).mean().backward()
            optimiser.step()
    path = folder / "public.safetensors"
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, path)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def of_rows(dataset: TaskDataset, rows: np.ndarray) -> TaskDataset:
    index = torch.as_tensor(rows)
    return TaskDataset(dataset.inputs[index], dataset.targets[index], tuple(str(row) for row in rows))


def _mnist(part: str) -> Examples:
    folder = data_folder() / "mnist"
    if not folder.is_dir():
        raise DataMissing(f"{folder} is missing: set WARDROUND_DATA to the folder that holds mnist/")
    return _examples(
        *(read_idx(folder / f"{part}-{part_name}.gz") for part_name in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    )


def _examples(images: np.ndarray, labels: np.ndarray) -> Examples:
    return Examples(images, labels.astype(np.int64).reshape(-1), tuple(str(row) for row in range(len(images))))


def _digits() -> TransferRecords:
    whole = _mnist("train")
    train = whole.take(np.arange(_DIGITS))
    return TransferRecords(train, whole.take(np.arange(_DIGITS, _DIGITS + _JUDGING)), _mnist("t10k"))


def _x_rays() -> TransferRecords:
    path = data_folder() / "pneumoniamnist" / "pneumoniamnist_rebuilt.npz"
    if not path.is_file():
        raise DataMissing(f"{path} is missing: set WARDROUND_DATA to the folder that holds pneumoniamnist/")
    train, validation, test = (read_npz(path, split=part) for part in ("train", "val", "test"))
    return TransferRecords(*(_examples(each.inputs, each.labels) for each in (train, validation, test)))


CASES: Mapping[str, TransferCase] = {
    "mnist": TransferCase(
        "6,000 digits of MNIST at four hospitals; public: invented handwriting, 100 glyphs of 200 copies",
        10,
        100,
        _digits,
        lambda: _examples(*handwriting(100, 200, _PUBLIC_SEED)),
    ),
    "pneumonia": TransferCase(
        "4,708 chest X-rays of PneumoniaMNIST at four hospitals; taken as public: 20,000 digits of MNIST",
        2,
        10,
        _x_rays,
        lambda: _mnist("train").take(np.arange(20_000)),
    ),
}
