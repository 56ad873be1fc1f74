"""Released models on patients who are never trained on: the section `evaluation` of a study's settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from accounting.plan.queries import EvaluationPlan
from study_protocol.queries.first_record import FirstRecord
from study_protocol.queries.kinds.evaluation import Evaluation
from study_protocol.study.queries import DataVersion, QueryDocument
from study_protocol.wire.values import Message, Probability, Whole


class ScheduledQuestion(Evaluation):
    """A question of kind `evaluation` without its model: the schedule says which."""

    # Fixed, and so in no list of entries.
    kind: SkipJsonSchema[Literal["evaluation"]] = "evaluation"
    model: SkipJsonSchema[Annotated[Whole, Field(ge=0, le=0)]] = 0
    first_record: SkipJsonSchema[FirstRecord | None] = Field(default=None, exclude=True)

    @field_validator("first_record")
    @classmethod
    def _is_of_no_window(cls, window: FirstRecord | None) -> None:
        if window is not None:
            raise ValueError("leave first_record out: the windows of [monitoring] follow from its own entries")

    def of(self, model: int) -> Evaluation:
        """Return the question about this released model."""
        return Evaluation.model_validate(self.model_dump(mode="json") | {"model": model})

    def in_words(self) -> str:
        return super().in_words().replace(f"model {self.model} ", "the newest model ", 1)


class EvaluationSettings(Message):
    """Patients who are never trained on, and the questions about released models that are asked of them by schedule."""

    share: Probability = Field(description="of every hospital's patients, drawn once for all studies on them")
    every: Annotated[Whole, Field(ge=1, le=10_000_000)] | None = Field(
        default=None,
        description="asked after so many released models, and the last. Left out: by hand",
    )
    question: ScheduledQuestion | None = Field(default=None, description="a question of kind evaluation. Needs `every`")
    data_version: DataVersion = Field(
        default="1", description="the records of scheduled questions, as hospitals name them"
    )

    @model_validator(mode="after")
    def _is_a_schedule(self) -> Self:
        if (self.every is None) != (self.question is None):
            raise ValueError("every and question come together: what is asked, and how often")
        return self

    def plan(self) -> EvaluationPlan:
        """Return the plan as the accounts know it."""
        cost = None if self.question is None else QueryDocument(question=self.question.of(0)).cost()
        return EvaluationPlan(self.every, cost)

    def due(self, released: int) -> bool:
        """Return whether the newest model is asked about, so many having been released by rounds."""
        return self.every is not None and released > 0 and released % self.every == 0

    def document(self, model: int) -> QueryDocument | None:
        """Return the scheduled question about this model, or None if none is scheduled."""
        if self.question is None:
            return None
        return QueryDocument(question=self.question.of(model), data_version=self.data_version)

    def schedules(self, document: QueryDocument) -> bool:
        """Return whether this is the scheduled question about some model that a round has released."""
        number = document.question.model_number
        return number is not None and number > 0 and self.document(number) == document
