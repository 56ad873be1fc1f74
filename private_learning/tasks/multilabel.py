"""Several labels at once, each yes or no: one logistic loss for each label that is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import WrongRows
from private_learning.tasks.columns import Columns, categories_of, indices_of
from private_learning.tasks.tables import COLUMNS, LayersParameters, TableTask, network
from private_learning.tasks.task import Task, TaskParameters, require_metrics
from private_learning.tasks.weights import network_weights
from study_protocol.cells import column_name

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray[Any, np.dtype[Any]]
# A round's metrics are at most 32 numbers.
MAX_LABELS_SHOWN = 14


class MultiLabel(Task):
    """Loss, predictions and metrics of a task with several labels. Targets are (n, labels): 1, 0, NaN if not known.

    labels: their names, in the order of the outputs.
    """

    predicts = "several labels"
    labels: tuple[str, ...]

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return loss(outputs, targets) -> (batch,), a sum over the record's known labels with known gradient."""
        from private_learning.gradients.losses import LabelsLoss

        return LabelsLoss()

    def known_labels(self, labels: Array) -> Tensor:
        """(n, labels) float32 out of numbers 0 and 1, NaN where one is not known.

        Raises:
            WrongRows: any other number, or records of which no label is known.
        """
        import torch

        wrong = np.any(~(np.isnan(labels) | np.isin(labels, (0, 1))), axis=1)
        if wrong.any():
            raise WrongRows(f"labels: {int(wrong.sum())} records have one that is neither 0 nor 1", wrong)
        empty = np.all(np.isnan(labels), axis=1)
        if empty.any():
            text = f"labels: {int(empty.sum())} of {len(labels)} records have none that is known: leave these rows out"
            raise WrongRows(text, empty)
        return torch.as_tensor(labels).float()

    def predictions(self, outputs: Tensor) -> Tensor:
        """(n, labels) probabilities, each of its own label, in the precision of the outputs."""
        import torch

        return torch.sigmoid(outputs)

    def prediction_names(self, count: int) -> tuple[str, ...]:
        return tuple(f"probability_{label}" for label in self.labels)

    def target_counts(self, targets: Tensor) -> dict[str, int]:
        counts: dict[str, int] = {}
        for place, label in enumerate(self.labels):
            counts[label] = int((targets[:, place] == 1).sum())
            unknown = int(targets[:, place].isnan().sum())
            counts |= {f"{label} not known": unknown} if unknown else {}
        return counts

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return means over the labels of log loss, accuracy and area under the curve, and each label's own.

        Own values are given for up to MOST_SHOWN labels. An area needs records with and without the label. A label that
        lacks one has none, and is in no mean of them.
        """
        require_metrics(outputs, targets)
        scores, truth = outputs.double().numpy(), targets.double().numpy()
        names = _names(self.labels)
        means: dict[str, list[float]] = {"log_loss": [], "accuracy": [], "roc_auc": []}
        single: dict[str, float] = {}
        for place, name in enumerate(names):
            for kind, value in _of_label(scores[:, place], truth[:, place]).items():
                means[kind].append(value)
                if kind != "log_loss":
                    single[f"{kind}_{name}"] = value
        metrics = {kind: float(np.mean(values)) for kind, values in means.items() if values}
        return metrics | (single if len(names) <= MAX_LABELS_SHOWN else {})


def _of_label(scores: Array, truth: Array) -> dict[str, float]:
    # SciPy is slow to import, and opening a study does not need it.
    from private_learning.tasks.ranking import area

    is_known = ~np.isnan(truth)
    if not is_known.any():
        return {}
    z, ill = scores[is_known], truth[is_known] == 1
    metrics = {
        "log_loss": float(np.logaddexp(0.0, np.where(ill, -z, z)).mean()),
        "accuracy": float(((z > 0) == ill).mean()),
    }
    return metrics | ({"roc_auc": area(z, ill)} if ill.any() and not ill.all() else {})


def _names(labels: tuple[str, ...]) -> list[str]:
    """Return names that a metric may have, or the place where two would be equal."""
    plain = [re.sub("[^a-z0-9]+", "_", label.lower()).strip("_")[:50] for label in labels]
    return [name if name and plain.count(name) == 1 else f"label_{place}" for place, name in enumerate(plain, 1)]


def names_between_bars(text: str) -> tuple[str, ...]:
    """Return the names, or none where one is empty or stands twice."""
    names = tuple(column_name(part.strip()) for part in text.split("|"))
    return names if all(names) and len(set(names)) == len(names) else ()


class LabelsParameters(TaskParameters):
    """Names of the columns that hold labels. Beside these: column.<name>."""

    labels: str = Field(min_length=1, description="columns that the model learns to predict, with bars between")
    label_values: str | None = Field(
        default=None,
        alias="label-values",
        description="values of the columns for no and for yes, with a bar between. Default: 0 and 1",
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if len(self.names) < 2:
            raise ValueError("labels must be two or more different columns between bars, such as stroke|infarction")
        if len(self.no_yes) != 2:
            raise ValueError("label-values must be two different words between bars, such as no|yes")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        return self.names

    @property
    def no_yes(self) -> tuple[str, ...]:
        return categories_of(self.label_values or "0|1")

    @property
    def names(self) -> tuple[str, ...]:
        return names_between_bars(self.labels)


class MultiLabelParameters(LayersParameters, LabelsParameters):
    """Parameters of the labels, and the shape of the model."""


class TableMultiLabel(TableTask[MultiLabelParameters], MultiLabel):
    """One linear layer, zero at the start, with an output for each label, or a network with tanh units."""

    name, kind = "multi-label", MultiLabelParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.labels = self.parameters.names

    @property
    def widths(self) -> list[int]:
        """Inputs, units of each hidden layer, outputs."""
        return [self.features, *[self.parameters.hidden] * self.parameters.layers, len(self.labels)]

    def model(self) -> nn.Module:
        return network(self.widths)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return network_weights(self.widths, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"labels": "stroke|infarction|sepsis", **COLUMNS}

    def synthetic_targets(self, scores: Array, draw: np.random.Generator) -> dict[str, Any]:
        labels = {name: (scores[:, k % 5] > 0).astype(float) for k, name in enumerate(self.labels)}
        labels[self.labels[0]][::7] = np.nan
        return labels

    def targets_of(self, columns: Columns) -> Tensor:
        return self.known_labels(np.stack([self._read(name, columns[name]) for name in self.labels], axis=1))

    def _read(self, name: str, values: Any) -> Array:
        """Return (n,) 0, 1 and NaN."""
        places, absent = indices_of(values, self.parameters.no_yes, f"label column {name}", "label-values")
        return np.where(absent, np.nan, places.astype(np.float64))
