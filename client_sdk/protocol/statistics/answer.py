"""What is read off a noised sum: tables of estimates with their errors and intervals, and how to draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from client_sdk.protocol.wire.text import Text
from client_sdk.protocol.wire.values import Finite, Message

ESTIMATE, DP_ERROR, SAMPLING_ERROR, LOW, HIGH = "estimate", "dp_error", "sampling_error", "low", "high"
COVERAGE = 0.95
SIMULATIONS = 2000


@dataclass(frozen=True)
class NoisedSum:
    """The sum over all patients of all hospitals, with the noise of every survivor.

    total  (cells,) on the scale of one patient's vector
    std    standard deviation of the noise that is really in every cell, on the same scale
    seed   of the simulations behind intervals: equal sums have equal answers
    """

    total: NDArray[np.float64]
    std: float
    seed: int

    def generator(self) -> np.random.Generator:
        """For intervals alone: nothing secret is drawn from it."""
        return np.random.default_rng(self.seed)


class Plot(Message):
    """How a table is drawn. x, y, low, high, by: names of its columns; by: one curve for each of its values."""

    kind: Literal["bars", "steps", "line", "points"] = Field(description="the form")
    x: Text = Field(description="column")
    y: Text = Field(description="column")
    low: Text | None = Field(default=None, description="column of the interval's lower end")
    high: Text | None = Field(default=None, description="column of the interval's upper end")
    by: Text | None = Field(default=None, description="column whose values are drawn apart")


class AnswerTable(Message):
    """Columns that hold estimates are named estimate, dp_error, sampling_error, low, high."""

    name: Text = Field(description="for programs: letters, digits and hyphens")
    title: Text = Field(description="for people")
    columns: tuple[Text, ...] = Field(description="names")
    rows: tuple[tuple[Finite | Text | None, ...], ...] = Field(description="one value for each column")
    counts: Text | None = Field(default=None, description="column that counts patients; small ones may be suppressed")
    plot: Plot | None = Field(default=None, description="how to draw it")

    def suppressed(self, below: int) -> AnswerTable:
        """As of `Answer`; tables of anything but patients stay."""
        if self.counts is None:
            return self
        place = self.columns.index(self.counts)
        counted = zip(self.rows, (row[place] for row in self.rows), strict=True)
        kept = tuple(row for row, count in counted if isinstance(count, int | float) and count >= below)
        return self.model_copy(update={"rows": kept})


class Answer(Message):
    """The first table is the answer itself; others are beside it."""

    tables: tuple[AnswerTable, ...] = Field(min_length=1, description="estimates")
    notes: tuple[Text, ...] = Field(default=(), description="what a reader should know")

    def suppressed(self, below: int) -> Answer:
        """Without the rows whose published estimate of patients is below this."""
        if below <= 0:
            return self
        return self.model_copy(update={"tables": tuple(table.suppressed(below) for table in self.tables)})
