"""Classifiers on tables: logistic regression and a multilayer perceptron.

The columns of a table are described by public numbers that travel in a study's parameters.

    column.age       = "18..90"                  a number: clipped to the range, scaled to [-1, 1]; must be present
    column.chol      = "100..400; missing=240"   the same; where it is missing, 240 stands in and an indicator is 1
    column.pain      = "1|2|3|4"                 a category: one indicator each
    column.thal      = "3|6|7; missing"          the same; where it is missing all are 0 and a further indicator is 1

Range, categories and the constant for missing values are chosen from public knowledge before the study. Nothing is
fitted to the records, so preprocessing is the same whoever is in the data: it costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import nn

from client_sdk.data import DataError, Records, Table
from client_sdk.tasks.task import Classification, TaskDataset, TaskError, TaskParameters

PREFIX = "column."


@dataclass(frozen=True)
class NumberColumn:
    """A number in the public range low … high. missing: what stands in for it where it may lack; None: it may not."""

    name: str
    low: float
    high: float
    missing: float | None

    @property
    def width(self) -> int:
        return 1 if self.missing is None else 2

    def encode(self, values: np.ndarray) -> np.ndarray:
        """(n,) numbers, NaN = missing, to (n, width) in [-1, 1] and, where missing values are allowed, an indicator.

        Raises:
            DataError: text, an infinity, or a missing value where none is allowed.
        """
        if values.dtype.kind != "f":
            raise DataError(f"column {self.name}: numbers are expected")
        if np.isinf(values).any():
            raise DataError(f"column {self.name}: {int(np.isinf(values).sum())} infinite values")
        absent = np.isnan(values)
        if self.missing is None:
            _require_present(self.name, absent)
        filled = values if self.missing is None else np.where(absent, self.missing, values)
        # Halved before the difference, so that public bounds near the largest float do not overflow.
        middle, half = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        scaled = (np.clip(filled, self.low, self.high) - middle) / half
        return scaled[:, None] if self.missing is None else np.stack([scaled, absent.astype(np.float64)], axis=1)


@dataclass(frozen=True)
class CategoryColumn:
    """One of the public categories. missing: whether it may lack."""

    name: str
    categories: tuple[str, ...]
    missing: bool

    @property
    def width(self) -> int:
        return len(self.categories) + self.missing

    def encode(self, values: np.ndarray) -> np.ndarray:
        """(n,) numbers or text to (n, width) indicators.

        Raises:
            DataError: a value outside the categories, or a missing one where none is allowed.
        """
        keys = np.array([_category(value) for value in values.tolist()], dtype=object)
        absent = np.array([key is None for key in keys])
        # Text against text: `_category` has written both sides the same way.
        hits = np.stack([keys == category for category in self.categories], axis=1)
        unknown = int(np.sum(~absent & ~hits.any(axis=1)))
        if unknown:
            raise DataError(f"column {self.name}: {unknown} values outside the study's categories")
        if not self.missing:
            _require_present(self.name, absent)
        return (np.column_stack([hits, absent]) if self.missing else hits).astype(np.float64)


Column = NumberColumn | CategoryColumn


def read_columns(parameters: Mapping[str, object]) -> tuple[Column, ...]:
    """The columns among `parameters`, in the order of their names.

    Raises:
        TaskError: no column, or a description that is not one of the four forms.
    """
    # By name: the order that a model's weights refer to must survive canonical JSON.
    described = sorted(item for item in parameters.items() if item[0].startswith(PREFIX))
    found = [_read(key.removeprefix(PREFIX), text) for key, text in described]
    if not found:
        raise TaskError(f"at least one parameter {PREFIX}<name> is needed")
    return tuple(found)


def encode_columns(columns: tuple[Column, ...], data: Mapping[str, np.ndarray]) -> np.ndarray:
    """(n, Σ width) float64 in [-1, 1].

    Raises:
        DataError: a column is not in the table, or as in the columns' own `encode`.
    """
    lacking = [column.name for column in columns if column.name not in data]
    if lacking:
        raise DataError(f"the table lacks the columns {lacking}")
    return np.concatenate([column.encode(data[column.name]) for column in columns], axis=1)


class TableParameters(TaskParameters):
    """label: column of whole numbers 0 … classes − 1. Beside these: column.<name>, described above."""

    label: str = Field(min_length=1)
    classes: int = Field(default=2, ge=2, le=10_000)


class PerceptronParameters(TableParameters):
    """hidden: units of each hidden layer. layers: how many of these."""

    hidden: int = Field(default=32, ge=1, le=65_536)
    layers: int = Field(default=1, ge=1, le=16)


P = TypeVar("P", bound=TableParameters)


class TableTask(Classification, Generic[P]):
    """A classifier whose inputs are the declared columns of a table."""

    name: ClassVar[str]
    kind: type[P]

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        own = {key: value for key, value in parameters.items() if not key.startswith(PREFIX)}
        self.parameters = self.kind.read(self.name, own)
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

    name, kind = "logistic-regression", TableParameters

    def model(self) -> nn.Module:
        return self.linear(self.features)


class MultilayerPerceptron(TableTask[PerceptronParameters]):
    """`layers` hidden layers of `hidden` units with tanh (Papernot et al. 2021: bounded activations clip less)."""

    name, kind = "mlp", PerceptronParameters

    def model(self) -> nn.Module:
        widths = [self.features] + [self.parameters.hidden] * self.parameters.layers
        hidden = [module for a, b in pairwise(widths) for module in (nn.Linear(a, b), nn.Tanh())]
        return nn.Sequential(*hidden, nn.Linear(widths[-1], self.outputs))


def _require_present(name: str, absent: np.ndarray) -> None:
    if absent.any():
        raise DataError(f"column {name}: {int(absent.sum())} missing values, and the study allows none")


def _read(name: str, text: object) -> Column:
    if not name or not isinstance(text, str):
        raise TaskError(f"{PREFIX}{name}: a text such as '18..90' or 'no|yes' is expected")
    body, _, rest = (part.strip() for part in text.partition(";"))
    if ".." in body:
        low, _, high = body.partition("..")
        missing = None if rest == "" else _number(name, rest.removeprefix("missing="))
        column = NumberColumn(name, _number(name, low), _number(name, high), missing)
        if not column.low < column.high:
            raise TaskError(f"{PREFIX}{name}: the range is empty")
        if missing is not None and not column.low <= missing <= column.high:
            raise TaskError(f"{PREFIX}{name}: the constant for missing values lies outside the range")
        return column
    categories = tuple(_category(part) for part in body.split("|"))
    if len(set(categories)) != len(categories) or len(categories) < 2 or None in categories:
        raise TaskError(f"{PREFIX}{name}: a range 'low..high' or two or more different categories 'a|b' are expected")
    if rest not in ("", "missing"):
        raise TaskError(f"{PREFIX}{name}: after the categories only '; missing' may stand")
    return CategoryColumn(name, tuple(str(category) for category in categories), rest == "missing")


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise TaskError(f"{PREFIX}{name}: {text.strip()!r} is not a number") from error
    if not math.isfinite(value):
        raise TaskError(f"{PREFIX}{name}: bounds and constants are finite")
    return value


def _category(value: object) -> str | None:
    # 3, 3.0 and "3.0" are one category: files disagree about how to write whole numbers.
    if value is None or value != value or str(value).strip() == "":
        return None
    try:
        number = float(str(value))
    except ValueError:
        return str(value).strip()
    return str(int(number)) if math.isfinite(number) and number.is_integer() else str(value).strip()
