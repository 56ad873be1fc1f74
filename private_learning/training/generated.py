"""Generated examples that follow a task's own description, for the trial of models and losses before round 1."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from private_learning.gradients.generated import ExampleMakers, Make, generator
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.task import TaskError


def examples_of(task: Task, dataset: TaskDataset) -> ExampleMakers:
    """Return generators of inputs and targets, in the shapes of the dataset. Its values are not used."""
    rows = dataset.targets.shape[1] if dataset.grouped else None
    return ExampleMakers(_in_rows(task.example_inputs, rows), _in_rows(task.example_targets, rows))


def _in_rows(make: Make, rows: int | None) -> Make | None:
    """Return the generator in (count, rows, ...), where records have rows, or None where the task has none."""
    try:
        make(1, generator())
    except TaskError:
        return None

    def grouped(count: int, draw: np.random.Generator) -> Tensor:
        values = make(count * (rows or 1), draw)
        return values if rows is None else values.view(count, rows, *values.shape[1:])

    return grouped
