"""A number explained by others, by least squares."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.counting import (
    STANDS_OUT,
    Estimates,
    Floats,
    blank_unsure,
    clip_estimates,
    counts,
    split,
    unknown_estimates,
)
from study_protocol.queries.explained import interval_of_explained
from study_protocol.queries.kinds.covariance import MAX_NUMBERS, moments_of, sum_of_products, triangle
from study_protocol.queries.kinds.numbers import (
    NORMAL_SAMPLING,
    TOO_FEW,
    counts_table,
    label_of,
    numbers_table,
    require_numbers_once,
)
from study_protocol.queries.phrases import listed, number_in_words
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.second_moments import SecondMoments, covariances
from study_protocol.queries.variables import Number, Patients, Range

INTERCEPT = "intercept"
# Of the number of patients: below it floats decide, not the data.
_MIN_EIGENVALUE = 1e-9
# A patient's rounded vector is off by half a step, of which the noise's deviation has 2²⁰.
_ROUNDING = 2.0**-21

# An R² up to here may be chance's work: quantiles of draws around it say too little of what is smaller.
_LITTLE = 0.5


class LinearRegression(BaseQuestion):
    """Coefficients, intercept and R² of least squares, over the patients that have every number.

    One patient's vector is that of `Covariance` over the predictors and then the outcome: Δ = 1.
    """

    kind: Literal["linear-regression"] = Field(description="what is asked")
    outcome: Range = Field(description="what is explained")
    predictors: Annotated[tuple[Number, ...], Field(min_length=1, max_length=MAX_NUMBERS - 1)] = Field(
        description="what explains it, each with its public range"
    )

    @model_validator(mode="after")
    def _has_each_number_once(self) -> Self:
        require_numbers_once((*self.predictors, self.outcome))
        return self

    @property
    def cells(self) -> int:
        return triangle(len(self.predictors) + 1)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def whole(self) -> bool:
        return False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(*(number.column for number in self.predictors), self.outcome.column)

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        return sum_of_products((*self.predictors, self.outcome), patients, self.included(patients), spacing)

    def answer(self, noised: NoisedSum) -> Answer:
        moments = moments_of(noised, len(self.predictors) + 1)
        patients = counts(np.array([moments.patients]), np.array([float(moments.noise[0, 0]) ** 2]))
        labels = [*((label_of(number),) for number in self.predictors), (INTERCEPT,)]
        notes: list[str] = []
        if moments.enough:
            ridge = _ridge(moments)
            coefficients, explained = self._read(moments, ridge, noised.generator())
            unsure = [] if _determined(moments) else [_OPEN]
            notes = [NORMAL_SAMPLING, _LONGER, *([_SHRUNK.format(ridge)] if ridge > 0 else []), *unsure]
        else:
            coefficients, explained, notes = unknown_estimates(len(labels)), unknown_estimates(1), [TOO_FEW]
        rest = float(patients.estimate[0])
        return Answer(
            tables=(
                numbers_table("coefficients", f"change of {self.outcome.column}", labels, coefficients, rest),
                numbers_table("r-squared", "share of the variance explained", [("R²",)], explained, rest),
                counts_table("patients", "patients with every value", [()], patients),
            ),
            notes=tuple(notes),
        )

    def _read(
        self, moments: SecondMoments, ridge: float, generator: np.random.Generator
    ) -> tuple[Estimates, Estimates]:
        """Return the coefficients in the columns' own units, the intercept last, and R²."""
        size, scale = moments.patients, self.outcome.half
        units = scale / np.array([number.half for number in self.predictors])
        middles = np.array([number.middle for number in self.predictors])
        draws = moments.draws(generator)

        def read(sums: Floats) -> Floats:
            fitted = _solved(sums, ridge)
            slopes = fitted[:, 1:] * units
            intercept = self.outcome.middle + scale * fitted[:, 0] - slopes @ middles
            residual_weights = np.column_stack([-fitted[:, 1:], np.ones(len(sums))])
            covariance = covariances(sums, size)
            # An outcome that never varies has no variance to explain: there is no R².
            varying = np.where(covariance[:, -1, -1] == 0, np.nan, covariance[:, -1, -1])
            unexplained = ((residual_weights[:, None] @ covariance)[:, 0] * residual_weights).sum(axis=1) / varying
            return np.column_stack([slopes, intercept, 1 - unexplained])

        coefficients, explained = split(draws.read(read), [len(units) + 1])
        if float(explained.raw[0]) <= _LITTLE:
            readings = read(np.concatenate([draws.matrix[None], draws.matrix + draws.noise + draws.sampling]))
            ends = interval_of_explained(readings[:, :-2] / units, readings[:, -1], moments.covariance[:-1, :-1])
            low, high = np.minimum(explained.low, ends[0]), np.maximum(explained.high, ends[1])
            explained = replace(explained, low=low, high=high)
        explained = clip_estimates(explained, np.zeros(1), np.ones(1))
        determined = _determined(moments)
        if not determined:
            endless = np.full(len(units) + 1, np.inf)
            coefficients = replace(coefficients, low=-endless, high=endless)
        sure = np.array([determined and bool(moments.varies[-1])])
        return coefficients, blank_unsure(sure, explained, np.zeros(1), np.ones(1))

    def in_words(self) -> str:
        numbers = listed(number_in_words(number) for number in self.predictors)
        outcome = number_in_words(self.outcome)
        return f"How {outcome} depends linearly on {numbers}, of patients that have all of them{self.who_in_words()}"


_LONGER = (
    "R² is not adjusted: every predictor and the noise make it larger, whether or not anything is explained. Its "
    "interval takes that into account: it begins at 0 where chance alone may explain what was found."
)
_SHRUNK = (
    "The noise is as large as what the data say about some combination of the predictors. Coefficients are therefore "
    "shrunk, as {:.3g} more patients without any relation would (ridge regression): ask about fewer predictors, in "
    "narrower ranges, or with less noise."
)
_OPEN = (
    "The predictors' sums of products do not stand out of their noise in every direction: coefficients have intervals "
    "without ends, and R² has no estimate."
)


def _determined(moments: SecondMoments) -> bool:
    """Return whether the predictors' smallest eigenvalue is above what noise alone may make of it: see `_ridge`."""
    predictors = moments.matrix[:-1, :-1]
    noise = float(moments.noise[0, 0]) * max(STANDS_OUT, math.sqrt(2 * len(predictors)))
    return float(np.linalg.eigvalsh(predictors)[0]) > noise


def _ridge(moments: SecondMoments) -> float:
    """Return the part of the smallest eigenvalue of the predictors' sums of products that the noise explains.

    The noise is a Gaussian orthogonal matrix whose largest eigenvalue is about s√(2d), s the deviation on its diagonal
    (Wigner 1955). Least squares alone is used where the smallest eigenvalue is above that.
    """
    predictors = moments.matrix[:-1, :-1]
    smallest = float(np.linalg.eigvalsh(predictors)[0])
    noise = float(moments.noise[0, 0]) * math.sqrt(2 * len(predictors))
    target = max(noise * (1 + _ROUNDING * moments.patients), _MIN_EIGENVALUE * moments.patients)
    return max(0.0, target - smallest)


def _solved(sums: Floats, ridge: float) -> Floats:
    """Return intercept and slopes on the scaled columns, shape (s, p + 1)."""
    size = sums.shape[1] - 1
    solved = np.linalg.solve(sums[:, :-1, :-1] + ridge * np.eye(size), sums[:, :-1, -1:])
    return solved[:, :, 0].astype(np.float64)
