"""Several tables over the same patients in one question: what is missing in many columns, a paper's first table."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.by_hospital import ByHospitalOnly, HospitalQuestion
from study_protocol.queries.counting import estimate_tables, join_estimates
from study_protocol.queries.groups import evenly
from study_protocol.queries.kinds.table import Crossed, answer_of, cells_of, patients_in, require_columns_once
from study_protocol.queries.phrases import listed, variable_in_words
from study_protocol.queries.variables import Patients


class Tables(HospitalQuestion):
    """Every patient is counted in one cell of each of m tables. One patient's vector: m ones, Δ = √m.

    All tables count the same patients, which the answer uses: their number is estimated from all of them.
    """

    kind: Literal["tables"] = Field(description="what is asked")
    tables: Annotated[tuple[Crossed, ...], Field(min_length=1, max_length=512)] = Field(
        description="of each, the variables whose cells are crossed"
    )
    by: ByHospitalOnly = None

    @model_validator(mode="after")
    def _are_sound_tables(self) -> Self:
        for variables in self.tables:
            require_columns_once(variables)
        if len(set(self.tables)) < len(self.tables):
            raise ValueError("tables: one stands twice")
        return self

    @property
    def block(self) -> int:
        return sum(map(cells_of, self.tables))

    @property
    def sensitivity(self) -> float:
        return root_up(len(self.tables))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(*(variable.column for variables in self.tables for variable in variables))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        included = self.included(patients)
        counts = [patients_in(variables, patients, included) for variables in self.tables]
        return np.concatenate(counts) * round(1 / spacing)

    def block_assumed(self, patients: int) -> NDArray[np.float64]:
        return np.concatenate([evenly(variables, patients) for variables in self.tables])

    def block_answer(self, noised: NoisedSum) -> Answer:
        ends = np.cumsum([cells_of(variables) for variables in self.tables])
        estimates = estimate_tables(np.split(noised.total, ends[:-1]), noised.std)
        labels = [
            (" and ".join(variable.column for variable in variables), ", ".join(cell))
            for variables in self.tables
            for cell in itertools.product(*(variable.labels for variable in variables))
        ]
        return answer_of(
            ("variable", "cell"),
            labels,
            join_estimates(estimates.cells),
            join_estimates(estimates.shares),
            estimates.patients,
            "tables",
        )

    def in_words(self) -> str:
        tables = [listed(variable_in_words(variable) for variable in variables) for variables in self.tables]
        numbered = tables[0] if len(tables) == 1 else "; ".join(f"({i}) {table}" for i, table in enumerate(tables, 1))
        suffix = "" if len(tables) == 1 else f" in {len(tables)} tables"
        return f"How many patients there are{suffix} by {numbered}, of patients{self.who_in_words()}"


def root_up(square: int) -> float:
    """Return √square, rounded up."""
    root = math.isqrt(square)
    return float(root) if root**2 == square else math.nextafter(math.sqrt(square), math.inf)
