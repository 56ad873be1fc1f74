"""Counts of patients by one column or by several at once: a cross-tabulation, what is missing, one row of a table 1."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import (
    ERRORS,
    ESTIMATE,
    HIGH,
    LOW,
    PATIENTS,
    RAW,
    Answer,
    AnswerTable,
    NoisedSum,
    Plot,
    rows_of,
)
from study_protocol.queries.counting import Estimates, estimate_tables
from study_protocol.queries.groups import evenly
from study_protocol.queries.phrases import listed, variable_in_words
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.variables import Patients, Variable

Crossed = Annotated[tuple[Variable, ...], Field(min_length=1, max_length=8)]


class ContingencyTable(BaseQuestion):
    """Every patient is counted in one cell of the product of the variables' cells. One patient's vector: one-hot."""

    kind: Literal["table"] = Field(description="what is asked")
    variables: Crossed = Field(description="what the rows of the table are made of")

    @model_validator(mode="after")
    def _has_each_column_once(self) -> Self:
        require_columns_once(self.variables)
        return self

    @property
    def cells(self) -> int:
        return cells_of(self.variables)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(*(variable.column for variable in self.variables))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        return patients_in(self.variables, patients, self.included(patients)) * round(1 / spacing)

    def assumed(self, patients: int) -> NDArray[np.float64]:
        return evenly(self.variables, patients)

    def answer(self, noised: NoisedSum) -> Answer:
        names = tuple(variable.column for variable in self.variables)
        labels = list(itertools.product(*(variable.labels for variable in self.variables)))
        estimates = estimate_tables([noised.total], noised.std)
        return answer_of(names, labels, estimates.cells[0], estimates.shares[0], estimates.patients, "table")

    def in_words(self) -> str:
        variables = listed(variable_in_words(variable) for variable in self.variables)
        return f"How many patients there are by {variables}, of patients{self.who_in_words()}"


def require_columns_once(variables: Sequence[Variable]) -> None:
    """Raises ValueError: the cells of one table would be made of the same column twice."""
    twice = [name for name, times in Counter(variable.column for variable in variables).items() if times > 1]
    if twice:
        raise ValueError(f"column {twice[0]}: stands twice in one table")


def cells_of(variables: Sequence[Variable]) -> int:
    return math.prod(len(variable.labels) for variable in variables)


def patients_in(variables: Sequence[Variable], patients: Patients, included: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many of those included are in each, shape (cells,). Raises UnreadableColumn."""
    places = tuple(variable.places(patients) for variable in variables)
    cells = np.ravel_multi_index(places, [len(variable.labels) for variable in variables])
    return np.bincount(cells[included], minlength=cells_of(variables)).astype(np.int64)


def answer_of(
    names: tuple[str, ...],
    labels: Sequence[Sequence[str]],
    cells: Estimates,
    shares: Estimates,
    patients: Estimates,
    name: str,
) -> Answer:
    """Counts, shares and the number of all patients. names: of the columns with the labels."""
    # A hospital's column may be called as one of ours.
    ours = {ESTIMATE, RAW, PATIENTS, *ERRORS}
    names = tuple(f"column {column}" if column in ours else column for column in names)
    by = names[0] if len(names) == 2 else None
    plot = Plot(kind="bars", x=names[-1], y=ESTIMATE, low=LOW, high=HIGH, by=by)
    counts = AnswerTable(
        name=name,
        title="patients",
        columns=(*names, ESTIMATE, RAW, *ERRORS),
        rows=rows_of(labels, cells.estimate, cells.raw, *cells.errors),
        counts=ESTIMATE,
        plot=plot,
    )
    fractions = AnswerTable(
        name="shares",
        title="share of the patients",
        columns=(*names, ESTIMATE, *ERRORS, PATIENTS),
        rows=rows_of(labels, shares.estimate, *shares.errors, cells.estimate),
        counts=PATIENTS,
        plot=plot,
    )
    everybody = AnswerTable(
        name="patients",
        title="patients in all",
        columns=(ESTIMATE, RAW, *ERRORS),
        rows=rows_of([()], patients.estimate, patients.raw, *patients.errors),
        counts=ESTIMATE,
    )
    return Answer(tables=(counts, fractions, everybody), notes=NOTES)


NOTES = (
    "Estimates are made to fit: none is below zero, and those of one table add up to the number of patients. Intervals "
    "and the numbers before adjustment (raw) do not have this. To add rows up, add raw numbers.",
)
