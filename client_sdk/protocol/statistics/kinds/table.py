"""Counts of patients by one column or by several at once: a cross-tabulation, what is missing, one row of a table 1."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from client_sdk.protocol.statistics.answer import (
    DP_ERROR,
    ESTIMATE,
    HIGH,
    LOW,
    SAMPLING_ERROR,
    SIMULATIONS,
    Answer,
    AnswerTable,
    NoisedSum,
    Plot,
)
from client_sdk.protocol.statistics.question import MOST_CELLS, BaseQuestion
from client_sdk.protocol.statistics.variables import Patients, Variable


class Table(BaseQuestion):
    """Every patient is counted in one cell of the product of the variables' cells. One patient's vector: one-hot."""

    kind: Literal["table"] = Field(description="what is asked")
    variables: Annotated[tuple[Variable, ...], Field(min_length=1, max_length=8)] = Field(
        description="what the rows of the table are made of"
    )

    @model_validator(mode="after")
    def _is_of_bounded_size(self) -> Self:
        if self.cells > MOST_CELLS:
            raise ValueError(f"variables: {self.cells} cells, and a question has at most {MOST_CELLS}")
        return self

    @property
    def cells(self) -> int:
        return math.prod(len(variable.labels) for variable in self.variables)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        named = [condition.column for condition in self.where] + [variable.column for variable in self.variables]
        return tuple(dict.fromkeys(named))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        places = [variable.places(patients) for variable in self.variables]
        cells = np.ravel_multi_index(places, [len(variable.labels) for variable in self.variables])
        counts = np.bincount(cells[self.included(patients)], minlength=self.cells)
        return counts.astype(np.int64) * round(1 / spacing)

    def answer(self, noised: NoisedSum) -> Answer:
        # One of N patients falls into a cell with probability p: what the next N would show varies as that does.
        expected = np.maximum(noised.total, 0.0)
        size = max(1.0, float(expected.sum()))
        sampling = np.sqrt(expected * (1 - expected / size))
        drawn = noised.generator().standard_normal((SIMULATIONS, self.cells)) * np.hypot(sampling, noised.std)
        low, high = (noised.total + np.quantile(drawn, share, axis=0) for share in (0.025, 0.975))
        labels = itertools.product(*(variable.labels for variable in self.variables))
        rows = tuple(
            (*label, float(found), noised.std, float(error), float(least), float(most))
            for label, found, error, least, most in zip(labels, noised.total, sampling, low, high, strict=True)
        )
        names = tuple(variable.column for variable in self.variables)
        columns = (*names, ESTIMATE, DP_ERROR, SAMPLING_ERROR, LOW, HIGH)
        plot = Plot(kind="bars", x=names[-1], y=ESTIMATE, low=LOW, high=HIGH, by=names[0] if len(names) == 2 else None)
        return Answer(tables=(AnswerTable(name="table", title="patients", columns=columns, rows=rows, plot=plot),))

    def in_words(self) -> str:
        return f"how many patients there are by {' and '.join(variable.column for variable in self.variables)}"
