"""Classifiers on tables: logistic regression and a multilayer perceptron; `columns` makes numbers of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from client_sdk.data import DataError, Records, Table, WrongRows
from client_sdk.tasks.columns import PREFIX, categories_of, encode_columns, indices_of, read_columns, require_columns
from client_sdk.tasks.losses import ClassLossParameters
from client_sdk.tasks.task import Classification, InputUse, Task, TaskParameters

if TYPE_CHECKING:
    from torch import Tensor, nn

    from client_sdk.tasks.dataset import TaskDataset

Array = np.ndarray[Any, np.dtype[Any]]


class TableParameters(TaskParameters):
    """Beside these: column.<name>, as `columns` describes them."""

    label: str = Field(min_length=1, description="column that the model learns to predict")
    classes: int = Field(default=2, ge=2, le=10_000, description="how many values the label has: 0, 1, …, classes − 1")
    label_values: str | None = Field(
        default=None,
        alias="label-values",
        description="the label's words in the order of their classes, with bars between; left out: whole numbers",
    )

    @model_validator(mode="after")
    def _as_many_words_as_classes(self) -> Self:
        if self.label_values is None:
            return self
        words = categories_of(self.label_values)
        if len(words) < 2:
            raise ValueError("label-values must be two or more different words between bars, such as no|yes")
        if "classes" in self.model_fields_set and self.classes != len(words):
            raise ValueError(f"label-values names {len(words)} classes, classes says {self.classes}; leave one out")
        return self


class ClassifierParameters(ClassLossParameters, TableParameters):
    """Those of a table, and the loss."""


class LayersParameters(TaskParameters):
    """Of a task that is linear, or a network where its parameters say so."""

    layers: int = Field(default=0, ge=0, le=16, description="how many hidden layers; 0: the model is linear")
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
        own = {key: value for key, value in parameters.items() if not key.startswith(PREFIX)}
        self.parameters = self.kind.read(self.name, own)
        self.columns = read_columns(parameters)
        self.features = sum(column.width for column in self.columns)

    @abstractmethod
    def targets_of(self, columns: Mapping[str, Array]) -> Tensor:
        """(n, ...) as `loss` takes them, of a table that has `target_columns`.

        Raises:
            WrongRows: values that are none.
        """

    def inputs(self, data: Records) -> Tensor:
        import torch

        table = self._table(data)
        return torch.as_tensor(encode_columns(self.columns, table.columns, table.first)).float()

    def dataset(self, data: Records) -> TaskDataset:
        from client_sdk.tasks.dataset import TaskDataset

        table = self._table(data)
        require_columns([*self.target_columns, *(column.name for column in self.columns)], table.columns)
        try:
            targets = self.targets_of(table.columns)
        except WrongRows as error:
            raise DataError(error.located(table.first)) from error
        return TaskDataset(self.inputs(table), targets, table.patients)

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        table = self._table(data)
        return tuple(column.use(table.columns[column.name]) for column in self.columns)

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        import torch

        drawn = [column.encode(column.random(count, generator)) for column in self.columns]
        return torch.as_tensor(np.concatenate(drawn, axis=1)).float()

    def _table(self, data: Records) -> Table:
        if not isinstance(data, Table):
            raise DataError(f"task {self.name} takes a table, not arrays")
        return data


class TableClassifier(TableTask[C], Classification):
    """A classifier of a table's rows, by one column of labels."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        words = self.parameters.label_values
        self.label_values = None if words is None else categories_of(words)
        self.classes = self.parameters.classes if self.label_values is None else len(self.label_values)
        self.target_columns = (self.parameters.label,)
        if isinstance(self.parameters, ClassLossParameters):
            self.gamma, self.class_weights = self.parameters.chosen(self.name, self.classes)

    @property
    def class_names(self) -> tuple[int | str, ...]:
        return super().class_names if self.label_values is None else self.label_values

    def targets_of(self, columns: Mapping[str, Array]) -> Tensor:
        import torch

        labels, where = columns[self.parameters.label], f"label column {self.parameters.label}"
        if self.label_values is None:
            return self.integer_labels(labels, where)
        found, absent = indices_of(labels, self.label_values)
        if absent.any():
            raise WrongRows(f"{where}: {int(absent.sum())} of {len(labels)} are missing; leave these rows out", absent)
        if (found < 0).any():
            text = f"{where}: {int(np.sum(found < 0))} of {len(labels)} are none of the study's label-values"
            raise WrongRows(text, found < 0)
        return torch.as_tensor(found)


class LogisticRegression(TableClassifier[ClassifierParameters]):
    """One linear layer, zero at the start."""

    name, kind = "logistic-regression", ClassifierParameters

    def model(self) -> nn.Module:
        return self.linear(self.features)


class MultilayerPerceptron(TableClassifier[PerceptronParameters]):
    """`layers` hidden layers of `hidden` units with tanh (Papernot et al. 2021: bounded activations clip less)."""

    name, kind = "mlp", PerceptronParameters

    def model(self) -> nn.Module:
        return network(self.widths)

    @property
    def widths(self) -> list[int]:
        """Inputs, units of each hidden layer, outputs."""
        return [self.features, *[self.parameters.hidden] * self.parameters.layers, self.outputs]


def network(widths: Sequence[int]) -> nn.Module:
    """Linear layers of these widths with tanh between; one alone is zero at the start."""
    from torch import nn

    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    if len(layers) > 1:
        return nn.Sequential(*(module for layer in layers[:-1] for module in (layer, nn.Tanh())), layers[-1])
    nn.init.zeros_(layers[0].weight)
    nn.init.zeros_(layers[0].bias)
    return layers[0]
