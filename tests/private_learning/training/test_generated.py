"""Generated examples of a task, in rows where patients have several."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from private_learning.tasks import Task, TaskDataset, load
from private_learning.tasks.registry import EXAMPLES
from private_learning.tasks.task import TaskError
from private_learning.training.generated import examples_of


class Described(Task):
    """Names its inputs, and has no words for its targets."""

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0] - targets

    def dataset(self, data: object) -> TaskDataset:
        raise NotImplementedError

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {}

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        return torch.as_tensor(generator.integers(5, 9, (count, 2))).float()

    def example_targets(self, count: int, generator: np.random.Generator) -> Tensor:
        raise TaskError("unknown")


def test_rows_of_a_patient_are_generated_together() -> None:
    patients = TaskDataset(torch.zeros(4, 3, 2), torch.zeros(4, 3), ("a", "b", "c", "d"), grouped=True)
    makers = examples_of(Described(), patients)
    assert makers.targets is None
    assert makers.inputs is not None
    values = makers.inputs(7, np.random.default_rng(1))
    assert values.shape == (7, 3, 2)
    assert 5 <= float(values.min()) <= float(values.max()) <= 8


def test_single_records_are_generated_as_the_task_makes_them() -> None:
    task = load("cnn", EXAMPLES["cnn"])
    records = TaskDataset(torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.int64), ("a", "b"))
    makers = examples_of(task, records)
    assert makers.inputs is not None
    assert makers.inputs(5, np.random.default_rng(1)).shape == (5, 1, 28, 28)
