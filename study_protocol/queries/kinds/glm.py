"""Generalised linear models: logistic, Poisson and linear regression by noised Newton steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from accounting.plan.queries import QueryCost
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.by_hospital import MAX_HOSPITALS
from study_protocol.queries.phrases import listed, number_in_words
from study_protocol.queries.question import MAX_NOISE, MIN_NOISE, BaseQuestion
from study_protocol.queries.regression.answers import FRAME, NEXT, final_answer, step_answer
from study_protocol.queries.regression.assumed import assumed_sum
from study_protocol.queries.regression.design import Design, Factor, Predictor
from study_protocol.queries.regression.families import FamilyName
from study_protocol.queries.regression.model import LARGEST, Model
from study_protocol.queries.regression.steps import MAX_STEPS, USUAL_STEPS, step_noise
from study_protocol.queries.variables import ColumnName, Indicator, Number, Patients, Range
from study_protocol.versions import GLM
from study_protocol.wire.values import Finite, Name

# Floats round a vector of norm 1 by less.
_NORM = 1 + 2.0**-34
_MAX_COUNT = 1_000
# A frame of more columns would be longer than its entry.
_MAX_FRAME, _MAX_COLUMNS = 1 << 16, 255
_Bounded = Annotated[Finite, Field(ge=-LARGEST, le=LARGEST)]
_Pair = Annotated[tuple[ColumnName, ColumnName], Field(description="two predictors")]


class GeneralisedLinear(BaseQuestion):
    """A regression of family logistic, Poisson or linear, over the patients that have every value.

    A person writes one question: step 1. `noise_multiplier` in it is that of the whole analysis, as if it were one
    question. It moves to `total_noise_multiplier`, and `noise_multiplier` becomes the step's own, with
    Σ 1 / noise_multiplier² ≤ 1 / total_noise_multiplier². A document that has both must have the two that belong
    together, so that the document of each step says its own noise.

    One patient's vector has, at the public coefficients `at` of the scaled design u (intercept last),
    (c, g·ω·w·r·u, k·ω·w·v·vec(u·uᵀ)): r the residual and v the curvature of `families.parts`, ω ≤ 1 the patient's
    weight over its largest, w = min(1, R² / ‖u‖²), off the diagonal times √2. Then ‖w·r·u‖ ≤ R·|r| and
    ‖w·v·u·uᵀ‖ ≤ R²·v, and with the factors of `families.scales` the norm is at most 1 for every `at`: Δ = 1. w and ω
    are no function of the outcome, so the estimating equation has its root where it would have it without them
    (Mallows 1975).
    """

    kind: Literal["glm"] = Field(description="what is asked")
    family: FamilyName = Field(description="logistic for yes or no, poisson for counts, linear for numbers")
    outcome: Number = Field(
        description="what is explained: of logistic the categories that count as yes. Of poisson low is 0, and counts "
        "above high bring no bias"
    )
    predictors: Annotated[tuple[Predictor, ...], Field(min_length=1, max_length=64)] = Field(
        description="what explains it: numbers with public ranges, categories as 0 and 1, categorical variables"
    )
    interactions: Annotated[tuple[_Pair, ...], Field(max_length=64)] = Field(
        default=(), description="pairs of predictors whose product is one more column"
    )
    offset: Range | None = Field(default=None, description="of logistic and poisson: added to the linear predictor")
    offset_is: Literal["linear", "exposure"] = Field(
        default="linear", description="exposure: the offset is the logarithm of the column, of a rate per unit"
    )
    weights: Range | None = Field(default=None, description="the weight of a patient. low is above 0")
    largest_predictor: Finite = Field(
        default=30.0, gt=0, le=50, description="linear predictors beyond ± this count as this"
    )
    by_hospital: bool = Field(default=False, strict=True, description="every hospital has an intercept of its own")
    hospitals: Annotated[tuple[Name, ...], Field(max_length=MAX_HOSPITALS)] = Field(
        default=(), description="with by_hospital: who has an intercept, rising. Left out: all members"
    )
    steps: Annotated[int, Field(strict=True, ge=1, le=MAX_STEPS)] = Field(
        default=1, description="how many questions one after another. Left out: 4, of poisson 5, of linear 2"
    )
    step: Annotated[int, Field(strict=True, ge=1, le=MAX_STEPS)] = Field(default=1, description="which one this is")
    at: Annotated[tuple[_Bounded, ...], Field(max_length=4096)] = Field(
        default=(), description="coefficients of the scaled design from the step before. Step 1: left out, all 0"
    )
    frame: Annotated[tuple[_Bounded, ...], Field(max_length=_MAX_FRAME)] = Field(
        default=(), description="centre and matrix in which the step is summed, from the step before. Step 1: left out"
    )
    total_noise_multiplier: Finite | None = Field(
        default=None, ge=MIN_NOISE, le=MAX_NOISE, description="noise multiplier of all steps together. Filled in"
    )

    @model_validator(mode="before")
    @classmethod
    def _has_the_noise_of_its_step(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        entries = {**cast("Mapping[str, Any]", value)}
        family, total = entries.get("family"), entries.get("noise_multiplier")
        if family not in USUAL_STEPS:
            return entries
        steps = entries.setdefault("steps", USUAL_STEPS[family])
        # Only where a person wrote it. A document that came back from the coordinator has both numbers.
        if entries.get("total_noise_multiplier") is None and entries.get("step", 1) == 1 and _are_numbers(total, steps):
            entries["total_noise_multiplier"] = total
            entries["noise_multiplier"] = step_noise(family, cast("float", total), 1, steps)
        return entries

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        self._require_columns()
        self._require_size()
        self._require_numbers()
        self._require_steps()
        self._require_point()
        return self

    def _require_columns(self) -> None:
        columns = [predictor.column for predictor in self.predictors]
        all_columns = [*columns, self.outcome.column]
        if len(set(all_columns)) < len(all_columns):
            twice = next(column for column in all_columns if all_columns.count(column) > 1)
            raise ValueError(f"column {twice}: stands twice. Several categories of one column go with a reference")
        for pair in self.interactions:
            if len(set(pair) & set(columns)) < 2:
                raise ValueError(f"interactions: {pair[0]} and {pair[1]} are not two of the predictors' columns")
        # Two equal columns have no coefficients of their own.
        if len(set(map(frozenset, self.interactions))) < len(self.interactions):
            raise ValueError("interactions: a pair stands twice")

    def _require_numbers(self) -> None:
        outcome = self.outcome
        if isinstance(outcome, Indicator) != (self.family == "logistic"):
            raise ValueError(
                "outcome: of family logistic it has categories, those that count as yes. Of others it has low and high"
            )
        is_count = outcome.low == 0 and outcome.high.is_integer() and 1 <= outcome.high <= _MAX_COUNT
        if self.family == "poisson" and not is_count:
            raise ValueError(f"outcome: of family poisson low is 0, and high a whole number from 1 to {_MAX_COUNT}")
        if self.weights is not None and self.weights.low <= 0:
            raise ValueError("weights: low is above 0")
        if self.offset is not None:
            self._require_offset(self.offset)

    def _require_offset(self, offset: Range) -> None:
        if self.family == "linear":
            raise ValueError("offset: of a linear regression, subtract it from the outcome")
        if self.offset_is == "exposure" and offset.low <= 0:
            raise ValueError("offset: the low of an exposure is above 0")

    def _require_steps(self) -> None:
        if self.step > self.steps or (self.family == "linear" and self.steps > 2):
            raise ValueError("step: is 1 to steps, and a linear regression has 2 steps at most")
        if list(self.hospitals) != sorted(set(self.hospitals)) or (self.hospitals and not self.by_hospital):
            raise ValueError("hospitals: rising, each once, and with by_hospital alone")
        self._require_noise()

    def _require_noise(self) -> None:
        total = self.total_noise_multiplier
        if total is not None and step_noise(self.family, total, 1, self.steps) > MAX_NOISE:
            raise ValueError("noise_multiplier: that of the first step cannot be drawn. Ask with less noise")
        if total is None or self.noise_multiplier != step_noise(self.family, total, self.step, self.steps):
            raise ValueError(
                "noise_multiplier: is that of the step, by total_noise_multiplier. Leave total_noise_multiplier out, "
                "and noise_multiplier of the first step is that of the whole analysis"
            )

    def _require_size(self) -> None:
        if (count := self.model.slopes) > _MAX_COLUMNS:
            raise ValueError(
                f"predictors: {count} columns with those of categories and interactions, at most {_MAX_COLUMNS}"
            )

    def _require_point(self) -> None:
        slopes, size = self.model.slopes, self.model.size
        if len(self.at) != (0 if self.step == 1 else size):
            raise ValueError(f"at: step 1 has none, and later steps have {size} coefficients")
        if len(self.frame) not in ({0} if self.step == 1 else {0, slopes * (slopes + 1)}):
            raise ValueError("frame: step 1 has none. Later it has a centre and a row for each column of the design")
        intercepts = set(self.at[slopes:])
        # Slopes would make residuals larger than the sensitivity counts on.
        is_level = not any(self.at[:slopes]) and len(intercepts) <= 1 and all(abs(level) <= 1 for level in intercepts)
        if self.family == "linear" and not is_level:
            raise ValueError("at: of a linear regression slopes of 0 and one intercept for all, within ±1")

    @property
    def model(self) -> Model:
        """The public numbers of this step."""
        return Model(
            family=self.family,
            outcome=self.outcome,
            design=Design(self.predictors, self.interactions),
            offset=self.offset,
            is_exposure=self.offset_is == "exposure",
            weights=self.weights,
            largest_predictor=self.largest_predictor,
            hospitals=self.hospitals,
            at=self.at,
            frame=self.frame,
        )

    @property
    def cells(self) -> int:
        return self.model.cells

    @property
    def sensitivity(self) -> float:
        return _NORM

    @property
    def whole(self) -> bool:
        return False

    @property
    def protocol(self) -> int:
        return GLM

    @property
    def rounded_cells(self) -> int:
        return self.model.block

    @property
    def columns(self) -> tuple[str, ...]:
        optional = [number.column for number in (self.offset, self.weights) if number is not None]
        return self.with_conditions(*(p.column for p in self.predictors), self.outcome.column, *optional)

    @property
    def is_by_hospital(self) -> bool:
        return self.by_hospital

    @property
    def hospitals_asked(self) -> tuple[str, ...]:
        return self.hospitals

    def of_hospitals(self, hospitals: tuple[str, ...]) -> Self:
        if not self.by_hospital or self.hospitals:
            return self
        return self.model_validate({**self.model_dump(mode="json"), "hospitals": sorted(hospitals)})

    def at_hospital(self, hospital: str) -> Self:
        if not self.hospitals:
            return self
        slopes, place = self.model.slopes, self.hospitals.index(hospital)
        # Its own intercept alone. At step 1 there is none, and the slice is empty.
        at = (*self.at[:slopes], *self.at[slopes + place :][:1])
        return self.model_copy(update={"by_hospital": False, "hospitals": (), "at": at})

    def placed(self, total: NDArray[np.int64], hospital: str) -> NDArray[np.int64]:
        return self.model.placed(total, hospital) if self.hospitals else total

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        return self.model.total(patients, self.included(patients), spacing)

    def answer(self, noised: NoisedSum) -> Answer:
        if self.step < self.steps:
            return step_answer(self.model, noised, f"step {self.step} of {self.steps}")
        return final_answer(self.model, noised)

    @property
    def sums(self) -> int:
        return self.steps

    @property
    def least_noise(self) -> float:
        return self._noise_of(self.steps)

    def costs_after(self) -> tuple[QueryCost, ...]:
        # Coefficients are not known yet. The cost is the same for all: Δ is 1 wherever a step stands.
        later = [self._of_step(step, (0.0,) * self.model.size, ()) for step in range(self.step + 1, self.steps + 1)]
        grids = [(question, question.grid()) for question in later]
        return tuple(QueryCost(grid.std, grid.sensitivity, q.cells, q.bears) for q, grid in grids)

    def next_question(self, answer: Answer) -> Self | None:
        if self.step >= self.steps:
            return None
        tables = {table.name: table for table in answer.tables}
        at, frame = (tuple(float(cast("float", row[-1])) for row in tables[name].rows) for name in (NEXT, FRAME))
        return self._of_step(self.step + 1, at, frame)

    def approved_form(self) -> Self:
        return self if self.step == 1 else self._of_step(1, (), ())

    def assumed(self, patients: int) -> NDArray[np.float64]:
        """Return the sum over an imagined cohort, of which no predictor tells the outcome."""
        return assumed_sum(self.model, patients)

    def assumed_last(self, patients: int) -> Self:
        question = self
        while question.step < question.steps:
            answer = question.answer(NoisedSum(question.assumed(patients), 0.0, 0))
            question = question.next_question(answer) or question
        return question

    def _noise_of(self, step: int) -> float:
        return step_noise(self.family, cast("float", self.total_noise_multiplier), step, self.steps)

    def _of_step(self, step: int, at: tuple[float, ...], frame: tuple[float, ...]) -> Self:
        changes = {"step": step, "at": at, "frame": frame, "noise_multiplier": self._noise_of(step)}
        return self.model_validate({**self.model_dump(mode="json"), **changes})

    def in_words(self) -> str:
        names = listed(
            f"{p.column} ({listed(p.categories)}, compared with {p.reference})"
            if isinstance(p, Factor)
            else number_in_words(p)
            for p in self.predictors
        )
        steps = f" It is asked in {self.steps} steps." if self.steps > 1 else ""
        products = (
            f" with products of {listed(f'{a} and {b}' for a, b in self.interactions)}," if self.interactions else ""
        )
        return (
            f"How {number_in_words(self.outcome)} depends on {names} ({self.family} regression),{products} of patients "
            f"that have all of them{self.who_in_words()}{steps}"
        )


def _are_numbers(total: Any, steps: Any) -> bool:
    return (
        isinstance(total, int | float)
        and math.isfinite(total)
        and total > 0
        and isinstance(steps, int)
        and 1 <= steps <= MAX_STEPS
    )
