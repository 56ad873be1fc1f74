"""How long attacks take, from public numbers alone: the same settings and records make the same page on any machine."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.inputs import in_memory, take_rows
from simulation.audit.releases import RecordGradients

# Operations in a second on one core that small models reach at least, as measured.
_SPEED = 8e9
# A backward pass costs twice as much as a forward one, and a gradient of a gradient four times as much again.
PASS, SECOND_PASS = 3, 12


def seconds_of(task: Task, dataset: TaskDataset) -> float:
    """Return the seconds on one core of a forward pass of one record, counted by its multiplications and additions."""
    model = RecordGradients(task, "", grouped=dataset.grouped).model
    inputs = in_memory(take_rows(dataset.inputs, torch.arange(1)))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    return counter.get_total_flops() / 2 / _SPEED
