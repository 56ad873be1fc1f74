"""What a task says of its own records, for the generated ones that models and losses are tried on before round 1."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from private_learning.gradients.generated import Examples, Make, generator
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.task import TaskError


def examples_of(task: Task, dataset: TaskDataset) -> Examples:
    """Return how to make inputs and targets, in the shapes that the dataset has; nothing else is taken from it."""
    rows = dataset.targets.shape[1] if dataset.grouped else None
    return Examples(_in_rows(task.example_inputs, rows), _in_rows(task.example_targets, rows))


def _in_rows(make: Make, rows: int | None) -> Make | None:
    """The same in (count, rows, ...), where records have rows; None: the task does not say."""
    try:
        make(1, generator())
    except TaskError:
        return None

    def grouped(count: int, draw: np.random.Generator) -> Tensor:
        values = make(count * (rows or 1), draw)
        return values if rows is None else values.view(count, rows, *values.shape[1:])

    return grouped
