"""A number as the target: regression, linear or by a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import Records
from private_learning.tasks.columns import Columns, NumberColumn, numbers_in
from private_learning.tasks.tables import COLUMNS, LayersParameters, TableTask, network
from private_learning.tasks.task import ColumnText, InputUse, Task, TaskParameters, require_metrics
from private_learning.tasks.weights import network_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray[Any, np.dtype[Any]]


class Regression(Task):
    """Loss, predictions and metrics of a task whose target is one number of a public range.

    The model's output is on [-1, 1] where the number is in its range. A prediction beyond counts as the nearest bound.

    low, high: of the range. delta: of Huber's loss, in the number's unit, or None for the squared error.
    """

    low: float
    high: float
    delta: float | None = None

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return loss(outputs, targets) -> (batch,) of (batch, 1) and (batch,) on [-1, 1], with known gradient."""
        from private_learning.gradients.losses import number_loss

        return number_loss(None if self.delta is None else self.delta / self._half)

    def scaled(self, numbers: Array) -> Tensor:
        """(n,) float32 on [-1, 1] out of numbers, clipped to the range."""
        import torch

        return torch.as_tensor((np.clip(numbers, self.low, self.high) - self._middle) / self._half).float()

    def outcomes(self, targets: Tensor) -> Tensor:
        return self._middle + self._half * targets.double()

    def predictions(self, outputs: Tensor) -> Tensor:
        """(n, 1) in the number's unit and the precision of the outputs."""
        return self._middle + self._half * outputs.clamp(-1.0, 1.0)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return root mean squared and mean absolute error in the number's unit, and R² where the numbers differ."""
        require_metrics(outputs, targets)
        outcomes = self.outcomes(targets)
        errors = self.predictions(outputs.double()).squeeze(1) - outcomes
        square = errors.square().mean().item()
        metrics = {"rmse": square**0.5, "mae": errors.abs().mean().item()}
        spread = outcomes.var(correction=0).item()
        return metrics | ({"r2": 1 - square / spread} if spread > 0 else {})

    def evaluation(self) -> dict[str, Any]:
        largest_error = (self.high - self.low) / 2
        ranges = {"low": self.low, "high": self.high, "largest_error": largest_error}
        return {"prediction": "number", **ranges, "centred": True}

    # Halved before the difference, so that public bounds near the largest float do not overflow.
    @property
    def _middle(self) -> float:
        return self.low / 2 + self.high / 2

    @property
    def _half(self) -> float:
        return self.high / 2 - self.low / 2


class NumberParameters(TaskParameters):
    """A label that is a number of a public range, and the loss. Beside these: column.<name>."""

    label: ColumnText = Field(description="column that the model learns to predict, a number")
    low: float = Field(description="smallest value of the label. Smaller ones count as this one")
    high: float = Field(description="largest value of the label. Larger ones count as this one")
    loss: Literal["squared", "huber"] = Field(default="squared", description="huber: large errors count less")
    delta: float | None = Field(
        default=None, gt=0, description="huber: the error, in the label's unit, from which on it counts less"
    )

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.label,)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be below high")
        if (self.delta is not None) != (self.loss == "huber"):
            raise ValueError('loss = "huber" and delta belong together')
        return self


class RegressionParameters(LayersParameters, NumberParameters):
    """Parameters of a number, and the shape of the model."""


class TableRegression(TableTask[RegressionParameters], Regression):
    """One linear layer, zero at the start, or a network with tanh units."""

    name, kind = "regression", RegressionParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        p = self.parameters
        self.low, self.high, self.delta = p.low, p.high, p.delta

    @property
    def widths(self) -> list[int]:
        """Inputs, units of each hidden layer, outputs."""
        return [self.features, *[self.parameters.hidden] * self.parameters.layers, 1]

    def model(self) -> nn.Module:
        return network(self.widths)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return network_weights(self.widths, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"label": "los", "low": 0, "high": 30, "loss": "huber", "delta": 5, **COLUMNS}

    def synthetic_targets(self, scores: Array, draw: np.random.Generator) -> dict[str, Any]:
        return {self.parameters.label: self.low + (self.high - self.low) / (1 + np.exp(-scores[:, 0]))}

    def targets_of(self, columns: Columns) -> Tensor:
        return self.scaled(numbers_in(self.parameters.label, columns[self.parameters.label]))

    def prediction_names(self, count: int) -> tuple[str, ...]:
        return (f"prediction_{self.parameters.label}",)

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        label = NumberColumn(self.parameters.label, self.low, self.high, None)
        return label.use(self._table(data).columns[label.name]), *super().inspect(data)
