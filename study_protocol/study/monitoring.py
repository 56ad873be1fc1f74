"""How good the released model is on later patients: the section `monitoring` of a study's settings.

Patients whose first record lies on or after `first_day` are never trained on. Windows of equal length follow from that
day on, and each is asked about once.
"""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from accounting.plan.queries import QueryCost
from study_protocol.queries.first_record import Day, FirstRecord
from study_protocol.queries.kinds.evaluation import MAX_BINS, Evaluation
from study_protocol.queries.question import MAX_NOISE, MIN_NOISE
from study_protocol.queries.variables import ColumnName
from study_protocol.study.queries import QueryDocument
from study_protocol.wire.values import Finite, Message, Positive, Probability, Whole

DAYS_OF_A_YEAR = 365.25


class MonitoringQuestion(Message):
    """What is asked about every window: bins of the predicted probability by outcome, and the calibration slope."""

    noise_multiplier: Annotated[Finite, Field(ge=MIN_NOISE, le=MAX_NOISE)] = Field(
        description="standard deviation of the whole noise / the most that one patient changes. More: less ε"
    )
    edges: Annotated[tuple[Probability, ...], Field(min_length=1, max_length=MAX_BINS - 1)] = Field(
        description="ends of the bins inside (0, 1), rising: about five bins, evenly spread on the logit scale"
    )
    calibration: Annotated[Positive, Field(ge=0.1, le=10)] = Field(
        default=2.0, description="weight of the calibration slope beside the bins"
    )
    centre: Probability = Field(description="a usual probability, such as 1.5 times the share with the outcome")
    rows: Literal["first", "last", "mean", "any"] = Field(
        default="first", description="of a patient with several rows, as in questions of kind evaluation"
    )

    def of(self, model: int, window: FirstRecord | None = None) -> Evaluation:
        """Return the question about a released model. Raises ValueError: the edges do not rise."""
        return Evaluation.model_validate(
            {"kind": "evaluation", "prediction": "binary", "model": model, "first_record": window, **self.model_dump()}
        )

    @model_validator(mode="after")
    def _is_a_question(self) -> Self:
        self.of(0)
        return self


class MonitoringSettings(Message):
    """Windows of later patients, the question that is asked in each, and the rule of the alarm."""

    column: ColumnName = Field(description="the date of each row in the hospitals' tables")
    first_day: Day = Field(description="patients whose first record is from this day on are never trained on")
    every_days: Annotated[Whole, Field(ge=1, le=3660)] = Field(default=90, description="length of a window")
    windows: Annotated[Whole, Field(ge=1, le=400)] = Field(description="how many there are. All fit the limits")
    wait_days: Annotated[Whole, Field(ge=0, le=3660)] = Field(
        default=0, description="days after a window's end before it is asked about, such as until outcomes are known"
    )
    reference: Literal["calibrated", "first-window"] = Field(
        default="calibrated",
        description="what later windows are held against: slope 1 and intercept 0, or the first window",
    )
    false_alarms: Annotated[Probability, Field(ge=0.001, le=0.5)] = Field(
        default=0.05,
        description="the highest probability of a false alarm in a year without a drift, of a calibrated model",
    )
    question: MonitoringQuestion = Field(description="what is asked about every window")

    @model_validator(mode="after")
    def _ends_within_the_calendar(self) -> Self:
        self.window(self.windows)
        return self

    @property
    def windows_a_year(self) -> int:
        return math.ceil(DAYS_OF_A_YEAR / self.every_days)

    def window(self, number: int) -> FirstRecord:
        """Return window `number`, from 1. Windows share no day.

        Raises:
            ValueError: it lies after the year 2200.
        """
        try:
            first = self.first_day + timedelta(days=(number - 1) * self.every_days)
            return FirstRecord(column=self.column, first_day=first, end=first + timedelta(days=self.every_days))
        except (OverflowError, ValueError) as error:
            raise ValueError("windows: the last one lies after the year 2200") from error

    def data_version(self, number: int) -> str:
        """Return the data version that hospitals give to records which hold the whole window: the day after it."""
        return str(self.window(number).end)

    def due_on(self, number: int) -> date:
        """Return the first day on which the window is asked about."""
        return self.window(number).end + timedelta(days=self.wait_days)

    def document(self, number: int, model: int) -> QueryDocument:
        """Return the question of a window about a released model."""
        return QueryDocument(
            question=self.question.of(model, self.window(number)), data_version=self.data_version(number)
        )

    def window_of(self, document: QueryDocument) -> int | None:
        """Return the number of the window that this question asks about, or None if it is not that of a window."""
        window = window_in(document)
        if window is None:
            return None
        # The number follows from the day, and the whole document is compared below: other noise is another question.
        days = (window.first_day - self.first_day).days
        number = days // self.every_days + 1
        if days < 0 or number > self.windows:
            return None
        model = document.question.model_number
        return number if model is not None and model > 0 and self.document(number, model) == document else None

    def cost(self) -> QueryCost:
        """Return the charge of one window."""
        return self.document(1, 1).cost()


def window_in(document: QueryDocument) -> FirstRecord | None:
    """Return the window of first records that a question is about, or None if it is about no window."""
    question = document.question
    return question.first_record if isinstance(question, Evaluation) else None
