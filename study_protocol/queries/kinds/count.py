"""How many patients: one number."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from study_protocol.queries.answer import ERRORS, ESTIMATE, RAW, Answer, AnswerTable, NoisedSum, rows_of
from study_protocol.queries.by_hospital import ByHospitalOnly, HospitalQuestion
from study_protocol.queries.counting import counts
from study_protocol.queries.variables import Patients


class Count(HospitalQuestion):
    """How many patients meet `where`. One patient's vector: 1."""

    kind: Literal["count"] = Field(description="what is asked")
    by: ByHospitalOnly = None

    @property
    def block(self) -> int:
        return 1

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions()

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        return np.array([int(self.included(patients).sum()) * round(1 / spacing)], np.int64)

    def block_assumed(self, patients: int) -> NDArray[np.float64]:
        return np.array([float(patients)])

    def block_answer(self, noised: NoisedSum) -> Answer:
        estimates = counts(noised.total, np.array([noised.std**2]))
        columns = (ESTIMATE, RAW, *ERRORS)
        rows = rows_of([()], estimates.estimate, estimates.raw, *estimates.errors)
        table = AnswerTable(name="count", title="patients", columns=columns, rows=rows, counts=ESTIMATE)
        return Answer(tables=(table,))

    def in_words(self) -> str:
        return f"How many patients there are{self.who_in_words()}"
