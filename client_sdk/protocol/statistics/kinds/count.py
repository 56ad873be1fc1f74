"""How many patients: one number."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from client_sdk.protocol.statistics.answer import (
    DP_ERROR,
    ESTIMATE,
    HIGH,
    LOW,
    SAMPLING_ERROR,
    Answer,
    AnswerTable,
    NoisedSum,
)
from client_sdk.protocol.statistics.question import BaseQuestion
from client_sdk.protocol.statistics.variables import Patients

_NORMAL = 1.959963984540054


class Count(BaseQuestion):
    """How many patients meet `where`. One patient's vector: 1."""

    kind: Literal["count"] = Field(description="what is asked")

    @property
    def cells(self) -> int:
        return 1

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(condition.column for condition in self.where))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        return np.array([round(int(self.included(patients).sum()) / spacing)], np.int64)

    def answer(self, noised: NoisedSum) -> Answer:
        found = float(noised.total[0])
        # A count of patients varies as Poisson's law does.
        sampling = math.sqrt(max(found, 0.0))
        reach = _NORMAL * math.hypot(noised.std, sampling)
        rows = ((found, noised.std, sampling, found - reach, found + reach),)
        columns = (ESTIMATE, DP_ERROR, SAMPLING_ERROR, LOW, HIGH)
        return Answer(tables=(AnswerTable(name="count", title="patients", columns=columns, rows=rows),))

    def in_words(self) -> str:
        return "how many patients there are"
