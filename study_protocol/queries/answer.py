"""Answers that are read off a noised sum: tables of estimates with errors and intervals, and how to draw them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message, Whole

ESTIMATE, DP_ERROR, SAMPLING_ERROR, LOW, HIGH = "estimate", "dp_error", "sampling_error", "low", "high"
# Before estimates were made to fit together: unbiased, perhaps below zero. These are the ones to add up.
RAW = "raw"
# How many patients a row of something else rests on.
PATIENTS = "patients"
# The label of a hospital whose part is not in the sum.
NO_ANSWER = "no answer"
# The columns of `Estimates.errors`.
ERRORS = (DP_ERROR, SAMPLING_ERROR, LOW, HIGH)
COVERAGE = 0.95
SIMULATIONS = 2000


def value(number: float) -> float | None:
    """Return the number as answers hold it: None for one that is not finite, never a negative zero."""
    return float(number) + 0.0 if math.isfinite(number) else None


def rows_of(
    labels: Iterable[Sequence[float | str]], *columns: Iterable[float]
) -> tuple[tuple[float | str | None, ...], ...]:
    """Return the rows of a table: of each its labels, then its number in every column."""
    numbers = zip(*columns, strict=True)
    return tuple((*label, *map(value, row)) for label, row in zip(labels, numbers, strict=True))


@dataclass(frozen=True, repr=False)
class NoisedSum:
    """The sum over all patients of all hospitals, with the noise of every survivor.

    total  (cells,) on the scale of one patient's vector
    std    standard deviation of the noise that is really in every cell, on the same scale
    seed   of the simulations behind intervals. Equal sums have equal answers
    answered  the hospitals in the sum, which a question by hospital needs. None: all
    least  no note names fewer patients
    """

    total: NDArray[np.float64]
    std: float
    seed: int
    answered: frozenset[str] | None = None
    suppress_below: int = 0

    def generator(self) -> np.random.Generator:
        """Return a generator for intervals alone. No secret is drawn from it."""
        return np.random.default_rng(self.seed)


class Plot(Message):
    """How a table is drawn. x, y, low, high and by name its columns. Each value of `by` has its own curve."""

    kind: Literal["bars", "steps", "line", "points"] = Field(description="the form")
    x: Text = Field(description="column")
    y: Text = Field(description="column")
    low: Text | None = Field(default=None, description="column of the interval's lower end")
    high: Text | None = Field(default=None, description="column of the interval's upper end")
    by: Text | None = Field(default=None, description="column whose values are drawn apart")
    panel: Text | None = Field(
        default=None,
        exclude_if=lambda panel: panel is None,
        description="column whose values have a drawing each, on one scale",
    )
    scale: Literal["log"] | None = Field(
        default=None, exclude_if=lambda scale: scale is None, description="log: y is drawn by its logarithm"
    )
    reference: Finite | None = Field(
        default=None, exclude_if=lambda value: value is None, description="a line at this y, such as no effect"
    )
    omitted: tuple[Text, ...] = Field(
        default=(), exclude_if=lambda values: not values, description="values of x that are not drawn"
    )

    @property
    def names(self) -> tuple[str | None, ...]:
        """The columns that it reads."""
        return self.x, self.y, self.low, self.high, self.by, self.panel


class AnswerTable(Message):
    """Columns that hold estimates are named estimate, dp_error, sampling_error, low, high, and raw where it differs."""

    name: Text = Field(description="for programs: letters, digits and hyphens")
    title: Text = Field(description="for people")
    columns: tuple[Text, ...] = Field(description="names")
    rows: tuple[tuple[Finite | Text | None, ...], ...] = Field(description="one value for each column")
    counts: Text | None = Field(default=None, description="column that counts patients; small ones may be suppressed")
    plot: Plot | None = Field(default=None, description="how to draw it")

    @model_validator(mode="after")
    def _is_a_table(self) -> Self:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.name}: every row has one value for each column")
        plotted = () if self.plot is None else self.plot.names
        if not {self.counts, *plotted} <= {None, *self.columns}:
            raise ValueError(f"table {self.name}: what is counted or drawn is one of its columns")
        return self

    def suppressed(self, below: int) -> AnswerTable:
        """Return the table as in `Answer.suppressed`. A table that counts no patients stays."""
        if self.counts is None:
            return self
        place = self.columns.index(self.counts)
        row_counts = zip(self.rows, (row[place] for row in self.rows), strict=True)
        rows = tuple(
            row
            for row, count in row_counts
            # A hospital that is silent counts no patient, and is no small number.
            if (isinstance(count, int | float) and count >= below) or (count is None and NO_ANSWER in row)
        )
        return self.model_copy(update={"rows": rows})


class AnswerArray(Message):
    """Noised counts of the cells of one crossed table, as whole numbers, so that they are summed up exactly."""

    name: Text = Field(description="the columns that it crosses")
    shape: tuple[Whole, ...] = Field(description="cells or groups of each column")
    steps: Annotated[Whole, Field(ge=1)] = Field(description="one patient counts for so many")
    values: tuple[Whole | None, ...] = Field(description="noised sums, row by row. null: not shown")

    @model_validator(mode="after")
    def _is_full(self) -> Self:
        if len(self.values) != math.prod(self.shape):
            raise ValueError(f"array {self.name}: one value for each of its {math.prod(self.shape)} cells")
        return self

    def suppressed(self, below: int) -> AnswerArray:
        """Return the array without the values of fewer patients than this."""
        lower_bound = below * self.steps
        values = tuple(None if value is None or value < lower_bound else value for value in self.values)
        return self.model_copy(update={"values": values})


class Answer(Message):
    """An answer to a question. The first table is the answer itself, and others are beside it."""

    tables: tuple[AnswerTable, ...] = Field(min_length=1, description="estimates")
    notes: tuple[Text, ...] = Field(default=(), description="what a reader should know")
    # Answers without arrays keep their signature.
    arrays: tuple[AnswerArray, ...] = Field(
        default=(), exclude_if=lambda arrays: not arrays, description="counts of many cells, of kind marginals"
    )

    def suppressed(self, below: int) -> Answer:
        """Return the answer without the rows whose published estimate of patients is below this.

        A note says that some are gone.
        """
        if below <= 0:
            return self
        tables = tuple(table.suppressed(below) for table in self.tables)
        removed = sum(
            len(whole.rows) - len(remaining.rows) for whole, remaining in zip(self.tables, tables, strict=True)
        )
        arrays = tuple(array.suppressed(below) for array in self.arrays)
        removed += sum(array.values.count(None) for array in arrays)
        rows = "1 row is not shown" if removed == 1 else f"{removed} rows are not shown"
        note = f"{rows}: each counts fewer than {below} patients, and this study shows no smaller numbers."
        notes = (*self.notes, *([note] if removed else []))
        return self.model_copy(update={"tables": tables, "notes": notes, "arrays": arrays})
