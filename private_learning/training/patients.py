"""Patients of several rows: one record, one loss, one gradient, one clip.

A patient's loss is the mean over its rows, so its gradient is the mean of theirs and is clipped as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from private_learning.gradients.losses import SeparateLoss
from private_learning.gradients.separate import separated
from private_learning.tasks.dataset import over, present

Loss = Callable[[Tensor, Tensor], Tensor]

# Layers that treat every vector along the last axis alone: rows may stay an axis of their own, and per-record norms
# keep their closed forms.
_LAST_AXIS_ALONE = (nn.Sequential, nn.Linear, nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid)


class RowsOfPatients(nn.Module):
    """(patients, rows, ...) to (patients, rows, outputs) by a model of single rows, which keeps its parameters."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._as_it_is = all(type(module) in _LAST_AXIS_ALONE for module in model.modules())

    def forward(self, inputs: Tensor) -> Tensor:
        if self._as_it_is:
            return self.model(inputs)
        return self.model(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])

    def rows_beside(self, inputs: Tensor) -> int:
        """Return how many rows the layers see along their first axis: 1 for patients, or the rows of all of them."""
        return 1 if self._as_it_is else inputs.shape[1]


@dataclass(frozen=True)
class LossOfPatients(SeparateLoss):
    """Loss of patients out of one of rows: (patients, rows, ...), (patients, rows, ...) -> (patients,).

    The loss of rows sees one row at a time, unless it is built in. A row whose target is marked throughout (`present`)
    is one that the patient does not have. Every patient has at least one.
    """

    loss: Loss

    @property
    def of_rows(self) -> Loss:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.loss

    @cached_property
    def of_each_row(self) -> Loss:  # pyright: ignore[reportIncompatibleVariableOverride]
        return separated(self.loss)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        real = present(targets, 2)
        # Any target of the right kind does for a row that is not there: its loss is not counted.
        fallback = targets.take_along_dim(over(real.int().argmax(1, keepdim=True), targets.ndim), 1)
        filled = torch.where(over(real, targets.ndim), targets, fallback)
        each = self.of_each_row(outputs.flatten(0, 1), filled.flatten(0, 1)).view_as(real)
        return torch.where(real, each, 0.0).sum(1) / real.sum(1)
