"""Classifiers on tables: logistic regression and a multilayer perceptron. `columns` makes numbers of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import DataError, Records, Table, WrongRows
from private_learning.tasks.columns import (
    PREFIX,
    Columns,
    Declared,
    categories_of,
    encode_columns,
    indices_of,
    missing_rows,
    read_columns,
    require_columns,
    require_no_label,
)
from private_learning.tasks.lacking import with_lacking
from private_learning.tasks.losses import ClassLossParameters
from private_learning.tasks.task import Classification, ColumnText, InputUse, Task, TaskError, TaskParameters
from private_learning.tasks.weights import network_weights, zeros
from study_protocol.cells import Column, column_of, read_numbers
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

    from private_learning.tasks.dataset import TaskDataset

# Columns of the examples.
COLUMNS = {"column.age": "18..90", "column.chol": "100..400; missing=240", "column.pain": "1|2|3|4"}


class TableParameters(TaskParameters):
    """Beside these: column.<name>, as `columns` describes them."""

    label: ColumnText = Field(description="column that the model learns to predict")
    classes: int = Field(default=2, ge=2, le=10_000, description="the label is 0, 1, …, classes − 1")
    label_values: str | None = Field(
        default=None,
        alias="label-values",
        description="the label's words in the order of classes, with bars between",
    )

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.label,)

    @model_validator(mode="after")
    def _as_many_words_as_classes(self) -> Self:
        if self.label_values is None:
            return self
        words = categories_of(self.label_values)
        if len(words) < 2:
            raise ValueError("label-values must be two or more different words with bars between, such as no|yes")
        if "classes" in self.model_fields_set and self.classes != len(words):
            raise ValueError(f"label-values names {len(words)} classes, classes says {self.classes}. Leave one out")
        return self


class ClassifierParameters(ClassLossParameters, TableParameters):
    """Those of a table, and the loss."""


class LayersParameters(TaskParameters):
    """Of a task that is linear, or a network where its parameters say so."""

    layers: int = Field(default=0, ge=0, le=16, description="number of hidden layers. 0: the model is linear")
    hidden: int = Field(default=32, ge=1, le=65_536, description="units of each hidden layer")


class PerceptronParameters(ClassifierParameters):
    """Those of a classifier, and the shape of the network."""

    hidden: int = Field(default=32, ge=1, le=65_536, description="units of each hidden layer")
    layers: int = Field(default=1, ge=1, le=16, description="how many hidden layers")


P = TypeVar("P", bound=TaskParameters)
C = TypeVar("C", bound=TableParameters)


class TableTask(Task, Generic[P]):
    """A task whose inputs are the declared columns of a table. A subclass says what its targets are."""

    name: ClassVar[str]
    kind: type[P]

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        settings = {key: value for key, value in parameters.items() if not key.startswith(PREFIX)}
        self.parameters = self.kind.read(self.name, settings)
        self.target_columns = self.parameters.targets
        self.columns = self.columns_of(parameters)
        self.features = sum(column.width for column in self.columns)
        require_no_label(self.columns, self.target_columns)

    def columns_of(self, parameters: Mapping[str, Any]) -> tuple[Declared, ...]:
        """Return the columns as the task reads them. Raises TaskError."""
        return read_columns(parameters)

    @abstractmethod
    def targets_of(self, columns: Columns) -> Tensor:
        """(n, ...) as `loss` takes them, of a table that has `target_columns`.

        Raises:
            WrongRows: values that are none.
        """

    def inputs(self, data: Records) -> Tensor:
        import torch

        table = self._table(data)
        return torch.as_tensor(encode_columns(self.columns, table.columns, table.first)).float()

    def round_inputs(self, data: Records) -> Tensor:
        """Return the inputs in a round: a cell without a declared value counts as missing, and ends no round.

        Where none may be missing, a number counts as the middle of its range and a category as none of them.
        """
        import torch

        table = self._table(data)
        return torch.as_tensor(encode_columns(self.columns, table.columns, table.first, strict=False)).float()

    def dataset(self, data: Records) -> TaskDataset:
        from private_learning.tasks.dataset import TaskDataset

        table = self._table(data)
        names = [*self.target_columns, *(column.name for column in self.columns)]
        require_columns(names, table.columns, cure=". If yours have other names, map them with --columns")
        return TaskDataset(self.inputs(table), self.table_targets(table), table.patients)

    def table_targets(self, data: Records) -> Tensor:
        """(n, ...) the targets alone. Raises DataError: a column lacks, or values that are none."""
        table = self._table(data)
        require_columns([*self.target_columns], table.columns)
        try:
            return self.targets_of(table.columns)
        except WrongRows as error:
            raise DataError(error.located(table.first)) from error

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        table = self._table(data)
        return tuple(column.use(table.columns[column.name]) for column in self.columns)

    def warnings(self, data: Records) -> tuple[str, ...]:
        """Return the columns with more than half of the values outside the study's range: often another unit."""
        # Of the columns alone: a time until an event often ends after the study's horizon.
        table = self._table(data)
        uses = [column.use(table.columns[column.name]) for column in self.columns]
        present = [use.values - use.missing - use.wrong for use in uses]
        return tuple(
            f"column {use.name}: {use.clipped} of {count} values lie outside the study's range. If they are in another "
            "unit, map them with --columns (multiply, add)"
            for use, count in zip(uses, present, strict=True)
            if 2 * use.clipped > count
        )

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        encoded = [column.encode(column.random(count, generator)) for column in self.columns]
        return torch.as_tensor(np.concatenate(encoded, axis=1)).float()

    def synthetic_records(self, count: int, seed: int = 0) -> Records:
        draw = np.random.default_rng(seed)
        columns: dict[str, Any] = {column.name: column.random(count, draw) for column in self.columns}
        inputs = np.concatenate([column.encode(columns[column.name]) for column in self.columns], axis=1)
        # (n, 5) scores that a linear model can find.
        scores = inputs @ draw.normal(size=(inputs.shape[1], 5)) + 0.3 * draw.normal(size=(count, 5))
        return Table.of(columns | self.synthetic_targets(scores, draw))

    def synthetic_targets(self, scores: np.ndarray, draw: np.random.Generator) -> dict[str, Any]:
        """Return target column -> (n,) cells that depend on (n, 5) scores. Raises TaskError: the task makes none."""
        raise TaskError(f"task {self.name} has no synthetic_targets of its own")

    def _table(self, data: Records) -> Table:
        if not isinstance(data, Table):
            raise DataError(f"task {self.name} takes a table, not arrays")
        return with_lacking(self.columns, data)


class TableClassifier(TableTask[C], Classification):
    """A classifier of a table's rows, by one column of labels."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        words = self.parameters.label_values
        self.label_values = None if words is None else categories_of(words)
        self.classes = self.parameters.classes if self.label_values is None else len(self.label_values)
        if isinstance(self.parameters, ClassLossParameters):
            self.gamma, self.class_weights = self.parameters.loss_settings(self.name, self.classes)

    @property
    def class_names(self) -> tuple[int | str, ...]:
        return super().class_names if self.label_values is None else self.label_values

    def targets_of(self, columns: Columns) -> Tensor:
        import torch

        labels, subject = columns[self.parameters.label], f"label column {self.parameters.label}"
        if self.label_values is None:
            return self._whole_numbers(column_of(labels), subject)
        places, absent = indices_of(labels, self.label_values, subject, "label-values")
        if absent.any():
            raise missing_rows(subject, absent)
        return torch.as_tensor(places)

    def synthetic_targets(self, scores: np.ndarray, draw: np.random.Generator) -> dict[str, Any]:
        labels = np.argsort(np.argsort(scores[:, 0])) * self.classes // len(scores)
        return {self.parameters.label: self.label_cells(labels)}

    def label_cells(self, labels: np.ndarray) -> Any:
        """Return (n,) cells of the label column out of (n,) classes."""
        return labels if self.label_values is None else [self.label_values[k] for k in labels]

    def _whole_numbers(self, labels: Column, subject: str) -> Tensor:
        """Texts of numbers, Booleans and numbers alike. Raises WrongRows: others."""
        read = read_numbers(labels)
        if read.wrong.any():
            raise WrongRows(
                f"{subject}: {int(read.wrong.sum())} of {len(labels)} are not whole numbers from 0 to "
                f'{self.classes - 1}. A study can name the words in their order, "label-values" = "first|second"',
                read.wrong,
                f"is {read.kind}",
            )
        return self.integer_labels(read.values, subject)


class LogisticRegression(TableClassifier[ClassifierParameters]):
    """One linear layer, zero at the start."""

    name, kind = "logistic-regression", ClassifierParameters

    def model(self) -> nn.Module:
        return self.linear(self.features)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return zeros({"weight": (self.outputs, self.features), "bias": (self.outputs,)})

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"label": "ill", "classes": 2, **COLUMNS}


class MultilayerPerceptron(TableClassifier[PerceptronParameters]):
    """`layers` hidden layers of `hidden` units with tanh (Papernot et al. 2021: bounded activations clip less)."""

    name, kind = "mlp", PerceptronParameters

    def model(self) -> nn.Module:
        return network(self.widths)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return network_weights(self.widths, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {
            "label": "triage",
            "classes": 3,
            "hidden": 8,
            "column.age": "0..110",
            "column.pulse": "20..220; missing=80; missing-values=0",
            "column.ward": "medical|surgical; missing",
        }

    @property
    def widths(self) -> list[int]:
        """Inputs, units of each hidden layer, outputs."""
        return [self.features, *[self.parameters.hidden] * self.parameters.layers, self.outputs]


def network(widths: Sequence[int]) -> nn.Module:
    """Return linear layers of these widths with tanh between. A single one is zero at the start."""
    from torch import nn

    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    if len(layers) > 1:
        return nn.Sequential(*(module for layer in layers[:-1] for module in (layer, nn.Tanh())), layers[-1])
    nn.init.zeros_(layers[0].weight)
    nn.init.zeros_(layers[0].bias)
    return layers[0]
