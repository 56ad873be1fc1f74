"""What a study trains: a model, a loss per record, and how a hospital's records become tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from client_sdk.data import DataError, Records
from client_sdk.gradients.layers import cross_entropy, logistic
from client_sdk.tasks.dataset import TaskDataset


class TaskError(ValueError):
    """A task that does not exist or was given parameters that it does not take. The text names the parameter."""


class TaskParameters(BaseModel):
    """Base of a task's parameters: strict types, no unknown names, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, task: str, values: Mapping[str, Any]) -> Self:
        """The parameters of `task`.

        Raises:
            TaskError: a parameter is unknown, missing, or out of its range.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'parameters'}: {e['msg']}" for e in error.errors())
            raise TaskError(f"task {task}: {problems}") from error


class Task(ABC):
    """One trainable thing. Preprocessing reads public parameters only, never a statistic of the records."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model. No layer may mix the records of a batch (no batch normalisation)."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(batch,) losses, each of one record alone."""

    @abstractmethod
    def dataset(self, data: Records) -> TaskDataset:
        """The records as tensors, row by row: a patient may have several.

        Raises:
            DataError: missing columns, NaN or ∞ where none may be, labels out of range.
        """

    @abstractmethod
    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Named finite numbers for a declared evaluation set outside the guarantee.

        outputs, targets: as `loss` takes them.
        """


class Classification(Task):
    """Loss and metrics of a classifier: one logit for two classes, one per class otherwise.

    A module of one's own needs `model` and `dataset` only; `integer_labels` checks labels.
    """

    classes: int

    def linear(self, features: int) -> nn.Linear:
        """One layer to the outputs, zero at the start."""
        layer = nn.Linear(features, self.outputs)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    @property
    def outputs(self) -> int:
        """Columns that the model must give."""
        return 1 if self.classes == 2 else self.classes

    # Not a method of its own: the closed forms know their losses by identity.
    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """loss(outputs, targets) -> (batch,), one of the functions whose gradient is known in closed form."""
        return logistic if self.classes == 2 else cross_entropy

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        if len(targets) == 0 or not torch.isfinite(outputs).all():
            raise DataError("metrics need at least one record and finite outputs")
        predicted = (outputs.squeeze(-1) > 0).long() if self.classes == 2 else outputs.argmax(-1)
        return {
            "accuracy": (predicted == targets).double().mean().item(),
            "log_loss": self.loss(outputs.double(), targets).mean().item(),
        }

    def integer_labels(self, labels: np.ndarray, where: str = "labels") -> Tensor:
        """(n,) int64 out of labels that are 0, 1, …, classes − 1.

        Raises:
            DataError: anything else, NaN included.
        """
        try:
            numbers = np.asarray(labels, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: whole numbers from 0 to {self.classes - 1} are expected, not text") from error
        # NaN compares as false, and so is counted as wrong.
        with np.errstate(invalid="ignore"):
            wrong = int(np.sum(~((numbers >= 0) & (numbers < self.classes) & (numbers == np.floor(numbers)))))
        if wrong:
            raise DataError(f"{where}: {wrong} of {len(numbers)} are not whole numbers from 0 to {self.classes - 1}")
        return torch.as_tensor(numbers.astype(np.int64))
