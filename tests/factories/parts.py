"""Public weights in a file, and tasks of which a part is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from private_learning.records import Examples, Records
from private_learning.tasks import Classification, TaskDataset, load

CNN: dict[str, Any] = {"height": 8, "width": 8, "classes": 3, "filters": 2, "hidden": 4, "high": 1.0}


@dataclass(frozen=True)
class Backbone:
    """A file, and what it holds."""

    path: Path
    sha256: str
    tensors: dict[str, Tensor]


def backbone(
    folder: Path,
    change: Mapping[str, Tensor | None] | None = None,
    *,
    task: str = "cnn",
    parameters: Any = CNN,
    seed: int = 0,
) -> Backbone:
    """First weights of a built-in task from a seed, with some of them changed or (None) left out."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = load(task, parameters).model()
    tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
    for name, tensor in (change or {}).items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    path = folder / "public.safetensors"
    save_file(tensors, path)
    return Backbone(path, hashlib.sha256(path.read_bytes()).hexdigest(), tensors)


class Fixed(Classification):
    """A task that makes the same first weights every time."""

    classes = 3

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            return nn.Sequential(
                nn.Linear(6, 8),
                nn.Tanh(),
                nn.Linear(8, 8),
                nn.Tanh(),
                nn.Linear(8, 8),
                nn.Tanh(),
                nn.Flatten(),
                nn.Linear(8, 3),
            )

    def dataset(self, data: Records) -> TaskDataset:
        assert isinstance(data, Examples)
        return TaskDataset(torch.as_tensor(data.inputs).float(), self.integer_labels(data.labels), data.patients)


def images(count: int, seed: int = 1) -> Examples:
    """Made-up images of the task `CNN`, one for each patient; the first ones are the same whatever the count."""
    draws = [np.random.default_rng([seed, row]) for row in range(count)]
    inputs = np.stack([draw.uniform(size=(8, 8)) for draw in draws]).astype(np.float32)
    labels = np.array([int(draw.integers(3)) for draw in draws])
    return Examples(inputs, labels, tuple(f"patient-{row}" for row in range(count)))
