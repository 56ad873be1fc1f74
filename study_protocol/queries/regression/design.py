"""The columns of a regression's design: scaled by public ranges, so that one patient's row has a bounded norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from study_protocol.cells import read_categories
from study_protocol.queries.counting import Floats
from study_protocol.queries.variables import (
    Codes,
    ColumnName,
    Indicator,
    Patients,
    Range,
    column_of,
    require_codes,
)
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message

INTERCEPT = "intercept"
# A number counts as uniform on [-√3, √3], of variance 1. Its mean square is taken to be smaller: few fill their range.
_OF_RANGE, _RANGE_SQUARE = math.sqrt(3.0), 2 / 3
# Of the columns of one categorical variable at most one is not 0.
_OF_LEVEL = math.sqrt(2.0)


class Factor(Message):
    """A categorical variable: a column of 0 and 1 for each category but the reference. Any other value is missing."""

    column: ColumnName = Field(description="its name in every hospital's table")
    categories: Annotated[Codes, Field(min_length=2)] = Field(description="its public values")
    reference: Text = Field(description="the category that the others are compared with")
    missing_values: Codes = Field(default=(), description="values that mean missing, beside an empty cell")

    @model_validator(mode="after")
    def _has_a_reference(self) -> Self:
        require_codes(self.column, self.categories, self.missing_values)
        if self.reference not in self.categories:
            raise ValueError(f"column {self.column}: reference is one of its categories")
        return self

    @property
    def levels(self) -> tuple[str, ...]:
        """The categories with a coefficient."""
        return tuple(category for category in self.categories if category != self.reference)

    def columns(self, patients: Patients) -> Floats:
        """Return 1 where a patient has the level, NaN where none of the categories, shape (n, levels).

        Raises UnreadableColumn.
        """
        read = read_categories(column_of(patients, self.column), self.categories, self.missing_values)
        # A patient with another value is in no sum: its row would count as the reference category.
        listed = ~read.missing & (read.places >= 0)
        places = [self.categories.index(level) for level in self.levels]
        return np.where(listed[:, None], read.places[:, None] == np.array(places), np.nan)


def _form(value: Any) -> str:
    if isinstance(value, dict):
        return "factor" if "reference" in value else "indicator" if "categories" in value else "range"
    return "factor" if isinstance(value, Factor) else "indicator" if isinstance(value, Indicator) else "range"


Predictor = Annotated[
    Annotated[Range, Tag("range")] | Annotated[Indicator, Tag("indicator")] | Annotated[Factor, Tag("factor")],
    Discriminator(_form),
]
"""A number in a public range, a category as 0 and 1, or a categorical variable."""


@dataclass(frozen=True)
class _Term:
    """One column: (x - middle) · slope. square: what its mean square is taken to be."""

    label: str
    middle: float
    slope: float
    square: float


@dataclass(frozen=True)
class Design:
    """The columns of predictors and interactions, the intercept last."""

    predictors: tuple[Range | Indicator | Factor, ...]
    interactions: tuple[tuple[str, str], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of all columns but the intercept."""
        main, pairs = self._terms, self._pairs
        return (*(term.label for term in main), *(f"{main[i].label} × {main[j].label}" for i, j in pairs))

    @property
    def square(self) -> float:
        """R²: a row whose squared norm ‖u‖² is above this has weight R² / ‖u‖²."""
        main = self._terms
        # Of a categorical variable only one column is not 0.
        singles = sum(
            2.0 if isinstance(p, Factor) else _RANGE_SQUARE if isinstance(p, Range) else 1.0 for p in self.predictors
        )
        return 1 + singles + sum(main[i].square * main[j].square for i, j in self._pairs)

    def rows(self, patients: Patients) -> Floats:
        """Return the scaled columns of patients, NaN where missing, shape (n, columns). Raises UnreadableColumn."""
        parts: list[Floats] = []
        for predictor in self.predictors:
            if isinstance(predictor, Factor):
                parts.append(predictor.columns(patients) * _OF_LEVEL)
            else:
                parts.append(predictor.scaled(patients)[:, None] * _unit(predictor))
        main = np.concatenate(parts, axis=1)
        pairs = [main[:, i] * main[:, j] for i, j in self._pairs]
        return np.column_stack([main, *pairs, np.ones(len(main))])

    @property
    def spans(self) -> Floats:
        """The width of each column that is 0 or 1, scaled, and 0 for the others, shape (columns without intercept,)."""
        widths = [
            _OF_LEVEL if isinstance(p, Factor) else 2.0 if isinstance(p, Indicator) else 0.0
            for p in self.predictors
            for _ in _terms_of(p)
        ]
        return np.array([*widths, *[0.0] * len(self._pairs)])

    @property
    def units(self) -> Floats:
        """T with scaled row = T · own row, in the columns' own units. So own coefficients are Tᵀ · scaled ones."""
        main, pairs = self._terms, self._pairs
        size = len(main) + len(pairs) + 1
        matrix = np.zeros((size, size))
        matrix[-1, -1] = 1.0
        for place, term in enumerate(main):
            matrix[place, place], matrix[place, -1] = term.slope, -term.slope * term.middle
        for place, (i, j) in enumerate(pairs, len(main)):
            slope = main[i].slope * main[j].slope
            matrix[place, place] = slope
            matrix[place, i], matrix[place, j] = -slope * main[j].middle, -slope * main[i].middle
            matrix[place, -1] = slope * main[i].middle * main[j].middle
        return matrix

    @property
    def _terms(self) -> list[_Term]:
        return [term for predictor in self.predictors for term in _terms_of(predictor)]

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        owners = [p.column for p in self.predictors for _ in _terms_of(p)]
        places = {name: [i for i, owner in enumerate(owners) if owner == name] for name in owners}
        return [(i, j) for a, b in self.interactions for i in places.get(a, []) for j in places.get(b, [])]


def _unit(predictor: Range | Indicator) -> float:
    return _OF_RANGE if isinstance(predictor, Range) else 1.0


def _terms_of(predictor: Range | Indicator | Factor) -> Sequence[_Term]:
    if isinstance(predictor, Factor):
        return [_Term(f"{predictor.column}: {level}", 0.0, _OF_LEVEL, 1.0) for level in predictor.levels]
    if isinstance(predictor, Indicator):
        return [_Term(f"{predictor.column}: {' or '.join(predictor.categories)}", 0.5, 2.0, 1.0)]
    return [_Term(predictor.column, predictor.middle, _OF_RANGE / predictor.half, _RANGE_SQUARE)]


def triangle_of(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return rows, columns and weights of the lower triangle: with √2 off the diagonal, squares add up as in full."""
    rows, columns = np.tril_indices(size)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))
