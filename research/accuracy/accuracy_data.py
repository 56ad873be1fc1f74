"""The data sets and public constants of `research.accuracy.accuracy`: features, models, steps, learning rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from private_learning.records import read_idx
from private_learning.tasks import load
from research.accuracy.oriented_gradients import oriented_gradients
from wardround.demo.scenarios import DataMissing, Scenario, breast_cancer, data_folder, heart_disease


@dataclass(frozen=True)
class AccuracySplit:
    """inputs: (n, d) float32. targets: (n,) int64. The same for the held-out records."""

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor

    @property
    def majority(self) -> float:
        """Accuracy on the held-out records of always naming the training records' commonest class."""
        return float((self.test_targets == self.targets.mode().values).double().mean())


@dataclass(frozen=True)
class Workload:
    """centred: the mean of the features is released once, with the noise and at the price of one more step."""

    name: str
    about: str
    split: Callable[[int], AccuracySplit]
    classes: int
    hidden: int
    centred: bool
    sampling_rate: float
    steps: int
    clip_norm: float
    learning_rate: float
    momentum: float
    seeds: int

    def model(self, features: int) -> nn.Module:
        """Linear, zero at the start; or one hidden layer with tanh (Papernot et al. 2021)."""
        if self.hidden:
            return nn.Sequential(nn.Linear(features, self.hidden), nn.Tanh(), nn.Linear(self.hidden, self.classes))
        layer = nn.Linear(features, self.classes)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    def settings(self) -> dict[str, object]:
        """The public constants, as they stand in the results file."""
        names = ("about", "hidden", "centred", "sampling_rate", "steps", "clip_norm", "learning_rate", "momentum")
        return {name: getattr(self, name) for name in names}


def _pooled(scenario: Scenario) -> AccuracySplit:
    task = load(scenario.task, scenario.task_parameters)
    parts = [task.dataset(records) for records in scenario.hospitals.values()]
    test = task.dataset(scenario.evaluation)
    inputs, targets = torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    return AccuracySplit(inputs, targets, test.inputs, test.targets)


@lru_cache(maxsize=1)
def _digits() -> AccuracySplit:
    folder = data_folder() / "mnist"
    if not folder.is_dir():
        raise DataMissing(f"{folder} is missing: set WARDROUND_DATA to the folder that holds mnist/")

    def part(name: str) -> tuple[Tensor, Tensor]:
        images = read_idx(folder / f"{name}-images-idx3-ubyte.gz")
        labels = read_idx(folder / f"{name}-labels-idx1-ubyte.gz").astype(np.int64)
        return oriented_gradients(torch.from_numpy(images)), torch.from_numpy(labels)

    return AccuracySplit(*part("train"), *part("t10k"))


def _table(
    name: str, about: str, split: Callable[[int], AccuracySplit], *, hidden: int, learning_rate: float
) -> Workload:
    return Workload(
        name,
        about,
        split,
        classes=2,
        hidden=hidden,
        centred=False,
        sampling_rate=0.5,
        steps=20,
        clip_norm=0.5,
        learning_rate=learning_rate,
        momentum=0.0,
        seeds=20,
    )


def _cancer(seed: int) -> AccuracySplit:
    return _pooled(breast_cancer(seed, by_size=False))


def _heart(seed: int) -> AccuracySplit:
    return _pooled(heart_disease(seed))


WORKLOADS: Mapping[str, Workload] = {
    "breast-cancer": _table("breast-cancer", "logistic regression, 455 records", _cancer, hidden=0, learning_rate=1.0),
    "heart-disease": _table(
        "heart-disease",
        "logistic regression, 736 records of four hospitals pooled",
        _heart,
        hidden=0,
        learning_rate=1.0,
    ),
    "heart-disease-mlp": _table(
        "heart-disease-mlp", "one hidden layer of 16, the same records", _heart, hidden=16, learning_rate=1.0
    ),
    "mnist": Workload(
        "mnist",
        "linear on 392 oriented-gradient features, 60,000 records, full batch",
        lambda _: _digits(),
        classes=10,
        hidden=0,
        centred=True,
        sampling_rate=1.0,
        steps=20,
        clip_norm=0.35,
        learning_rate=256.0,
        momentum=0.5,
        seeds=20,
    ),
}
