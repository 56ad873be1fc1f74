"""A smooth additive model of a yes or no: one curve for each column, which add up to a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.tasks.columns import Declared, categories_of, read_columns
from private_learning.tasks.curves import CurveColumn, curve_column, longest_row, monotone
from private_learning.tasks.tables import COLUMNS, TableClassifier, TableParameters
from private_learning.tasks.weights import zeros
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import nn

NAME = "additive"


class AdditiveParameters(TableParameters):
    """Those of a table with two classes, and the bins."""

    classes: int = Field(default=2, ge=2, le=2, description="how many values the label has: 0 and 1")
    bins: int = Field(default=32, ge=4, le=256, description="steps of a number's curve")

    @model_validator(mode="after")
    def _two_words(self) -> Self:
        if self.label_values is not None and len(categories_of(self.label_values)) != 2:
            raise ValueError("label-values must be two words: the model is of two classes")
        return self


class AdditiveModel(TableClassifier[AdditiveParameters]):
    """One linear layer on what `curves` makes of the columns, zero at the start.

    Scores are intercept + Σ_j f_j(x_j). So a gradient is the derivative of the loss, at most 1, times the inputs.
    """

    name, kind = NAME, AdditiveParameters

    def columns_of(self, parameters: Mapping[str, Any]) -> tuple[Declared, ...]:
        bins = self.parameters.bins
        return tuple(curve_column(column, bins) for column in read_columns(parameters, trends=True))

    def model(self) -> nn.Module:
        return self.linear(self.features)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return zeros({"weight": (self.outputs, self.features), "bias": (self.outputs,)})

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"label": "ill", **COLUMNS, "column.age": "18..90; increasing"}

    @property
    def longest_gradient(self) -> float:
        """Return a bound on the L2 norm of the gradient of any record: a clip norm of it clips none."""
        # Inputs are rounded to float32.
        return (1 + 2.0**-22) * math.sqrt(1 + sum(longest_row(column) ** 2 for column in self.columns))

    def weights_of_columns(self, weights: Mapping[str, Array]) -> list[tuple[Declared, np.ndarray[Any, Any]]]:
        """Return each column with its (width,) weights as float64."""
        ends = np.cumsum([column.width for column in self.columns])
        return list(zip(self.columns, np.split(weights["weight"][0].astype(np.float64), ends[:-1]), strict=True))

    def for_prediction(self, weights: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the weights after curves with a trend became monotone: post-processing, at no privacy cost."""
        if not any(isinstance(column, CurveColumn) and column.trend for column in self.columns):
            return weights
        bias, parts = float(weights["bias"][0]), list[np.ndarray[Any, Any]]()
        for column, part in self.weights_of_columns(weights):
            if isinstance(column, CurveColumn) and column.trend:
                curve, constant = monotone(column, part[: column.bins])
                # The constant is of patients whose number is known: a missing one keeps its score.
                part = np.concatenate([curve, part[column.bins :] - constant])
                bias += constant
            parts.append(part)
        return {
            "weight": np.concatenate(parts)[None].astype(np.float32),
            "bias": np.array([bias], np.float32),
        }
