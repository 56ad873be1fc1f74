"""Classifiers on tables: logistic regression and a multilayer perceptron."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import Field
from torch import nn

from client_sdk.data import DataError, Records, Table
from client_sdk.tasks.columns import PREFIX, encode_columns, read_columns
from client_sdk.tasks.parameters import TaskParameters
from client_sdk.tasks.task import Classification, TaskDataset


class TableParameters(TaskParameters):
    """label: column of whole numbers 0 … classes − 1. Beside these: column.<name>, see `client_sdk.tasks.columns`."""

    label: str = Field(min_length=1)
    classes: int = Field(default=2, ge=2, le=10_000)


class PerceptronParameters(TableParameters):
    hidden: int = Field(default=32, ge=1, le=65_536)
    layers: int = Field(default=1, ge=1, le=16)


P = TypeVar("P", bound=TableParameters)


class TableTask(Classification, Generic[P]):
    """A classifier whose inputs are the declared columns of a table."""

    name: ClassVar[str]
    parameters: P

    def __init__(self, kind: type[P], parameters: Mapping[str, Any]) -> None:
        own = {key: value for key, value in parameters.items() if not key.startswith(PREFIX)}
        self.parameters = kind.read(self.name, own)
        self.columns = read_columns(parameters)
        self.classes = self.parameters.classes
        self.features = sum(column.width for column in self.columns)

    def dataset(self, data: Records) -> TaskDataset:
        if not isinstance(data, Table):
            raise DataError(f"task {self.name} takes a table, not arrays")
        if self.parameters.label not in data.columns:
            raise DataError(f"the table lacks the label column {self.parameters.label!r}")
        inputs = encode_columns(self.columns, data.columns)
        targets = self.integer_labels(data.columns[self.parameters.label], f"label column {self.parameters.label}")
        return TaskDataset(torch.as_tensor(inputs).float(), targets, data.patients)


class LogisticRegression(TableTask[TableParameters]):
    """One linear layer, zero at the start."""

    name = "logistic-regression"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(TableParameters, parameters)

    def model(self) -> nn.Module:
        layer = nn.Linear(self.features, self.outputs)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer


class MultilayerPerceptron(TableTask[PerceptronParameters]):
    """`layers` hidden layers of `hidden` units with tanh (Papernot et al. 2021: bounded activations clip less)."""

    name = "mlp"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(PerceptronParameters, parameters)

    def model(self) -> nn.Module:
        widths = [self.features] + [self.parameters.hidden] * self.parameters.layers
        hidden = [module for a, b in pairwise(widths) for module in (nn.Linear(a, b), nn.Tanh())]
        return nn.Sequential(*hidden, nn.Linear(widths[-1], self.outputs))
