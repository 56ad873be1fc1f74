"""How good a released model is on patients that were set aside for evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from accounting.plan.queries import Bears
from client_sdk.protocol.statistics.answer import Answer, AnswerTable, NoisedSum
from client_sdk.protocol.statistics.question import BaseQuestion
from client_sdk.protocol.statistics.variables import Patients, Variable
from client_sdk.protocol.wire.values import Whole

PREDICTION, OUTCOME = "\x00prediction", "\x00outcome"


class Evaluation(BaseQuestion):
    """Stub."""

    kind: Literal["evaluation"] = Field(description="what is asked")
    model: Annotated[Whole, Field(ge=0, le=2**31 - 1)] = Field(description="number of the released model")
    prediction: Literal["binary", "classes", "number"] = Field(description="what it predicts")
    groups: Annotated[tuple[Variable, ...], Field(max_length=8)] = Field(default=(), description="groups")

    @property
    def model_number(self) -> int | None:
        return self.model

    @property
    def bears(self) -> Bears:
        return "evaluated"

    @property
    def cells(self) -> int:
        return 5

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return self.named(*(variable.column for variable in self.groups))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        keep = self.included(patients)
        found = np.zeros(5, np.int64)
        np.add.at(found, (2 * patients[OUTCOME] + (patients[PREDICTION] >= 0.5)).astype(int)[keep], round(1 / spacing))
        return found

    def answer(self, noised: NoisedSum) -> Answer:
        table = AnswerTable(name="scores", title="s", columns=("estimate",), rows=tuple((float(v),) for v in noised.total))
        return Answer(tables=(table,))

    def in_words(self) -> str:
        return f"How good model {self.model} of this study is{self.who()}"
