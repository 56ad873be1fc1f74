"""Covariances and correlations of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.counting import (
    Estimates,
    Floats,
    blank_unsure,
    clip_estimates,
    counts,
    split,
    unknown_estimates,
)
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
from study_protocol.queries.second_moments import (
    SecondMoments,
    correlations,
    covariances,
    means,
    nearest_possible,
    rounded_sum,
    scaled_columns,
)
from study_protocol.queries.variables import Indicator, Number, Patients, Range

MAX_NUMBERS = 64
# The product of a vector with itself has norm 1 at most after rounding in floats, too.
_BELOW_ONE = 1 - 2.0**-48


class Covariance(BaseQuestion):
    """Means, covariances (divisor n - 1) and correlations of k numbers, over the patients that have all of them.

    One patient's vector is the upper triangle of u·uᵀ for u = (1, x)/√(k + 1), its off-diagonals times √2. x is clipped
    and scaled to [-1, 1], so that the vector's norm is ‖u‖² ≤ 1 = Δ. Each is rounded to the grid.
    """

    kind: Literal["covariance"] = Field(description="what is asked")
    numbers: Annotated[tuple[Number, ...], Field(min_length=2, max_length=MAX_NUMBERS)] = Field(
        description="columns, each with its public range"
    )

    @model_validator(mode="after")
    def _has_each_number_once(self) -> Self:
        require_numbers_once(self.numbers)
        return self

    @property
    def cells(self) -> int:
        return triangle(len(self.numbers))

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def whole(self) -> bool:
        return False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(*(number.column for number in self.numbers))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        return sum_of_products(self.numbers, patients, self.included(patients), spacing)

    def answer(self, noised: NoisedSum) -> Answer:
        moments = moments_of(noised, len(self.numbers))
        k = len(self.numbers)
        rows, columns = np.triu_indices(k)
        off_diagonal = rows != columns
        patients = counts(np.array([moments.patients]), np.array([float(moments.noise[0, 0]) ** 2]))
        if moments.enough:
            mean, covariance, correlation = self._read(moments, noised.generator())
        else:
            mean, covariance, correlation = (
                unknown_estimates(k),
                unknown_estimates(len(rows)),
                unknown_estimates(int(off_diagonal.sum())),
            )
        names = [label_of(number) for number in self.numbers]
        pairs = [(names[i], names[j]) for i, j in zip(rows.tolist(), columns.tolist(), strict=True)]
        distinct_pairs = [pair for pair, off in zip(pairs, off_diagonal.tolist(), strict=True) if off]
        rest = float(patients.estimate[0])
        return Answer(
            tables=(
                numbers_table("covariance", "covariance", pairs, covariance, rest),
                numbers_table("correlation", "correlation", distinct_pairs, correlation, rest),
                numbers_table("mean", "mean", [(name,) for name in names], mean, rest),
                counts_table("patients", "patients with every value", [()], patients),
            ),
            notes=(NORMAL_SAMPLING, *((TOO_FEW,) if np.isnan(correlation.estimate).any() else ())),
        )

    def _read(self, moments: SecondMoments, generator: np.random.Generator) -> tuple[Estimates, Estimates, Estimates]:
        """Return means, covariances (upper triangle) and correlations (above the diagonal) in the columns' units."""
        size = moments.patients
        middles, halves = (np.array([getattr(n, name) for n in self.numbers]) for name in ("middle", "half"))
        lows, highs = (np.array([getattr(n, name) for n in self.numbers]) for name in ("low", "high"))
        upper, above = np.triu_indices(len(halves)), np.triu_indices(len(halves), 1)
        units = np.outer(halves, halves)

        def read(sums: Floats) -> Floats:
            covariance = covariances(sums, size)
            correlation = correlations(covariance)[:, *above]
            return np.concatenate(
                [middles + halves * means(sums), (covariance * units)[:, *upper], correlation], axis=1
            )

        estimates = moments.draws(generator).read(read)
        mean, covariance, correlation = split(estimates, [len(halves), len(halves) + len(upper[0])])
        # Units first or last: what is possible stays so. Intervals are of what was found.
        nearest = nearest_possible(moments.covariance)
        fitted = np.clip(correlations(nearest[None])[0][above], -1.0, 1.0)
        ends = np.ones(len(fitted))
        sure = moments.varies[above[0]] & moments.varies[above[1]]
        correlation = blank_unsure(
            sure, replace(clip_estimates(correlation, -ends, ends), estimate=fitted), -ends, ends
        )
        return (clip_estimates(mean, lows, highs), replace(covariance, estimate=(nearest * units)[upper]), correlation)

    def in_words(self) -> str:
        numbers = listed(number_in_words(number) for number in self.numbers)
        return (
            f"Means, covariances and correlations of {numbers}, of patients that have all of them{self.who_in_words()}"
        )


def triangle(numbers: int) -> int:
    """Return how many products of 1 and so many numbers there are."""
    return (numbers + 1) * (numbers + 2) // 2


def sum_of_products(
    numbers: Sequence[Range | Indicator], patients: Patients, included: NDArray[np.bool_], spacing: float
) -> NDArray[np.int64]:
    """Return the sum of the patients' rounded vectors, shape (triangle(k),). Raises UnreadableColumn."""
    scaled = scaled_columns(numbers, patients, included)
    complete = scaled[~np.isnan(scaled).any(axis=1)]
    size = scaled.shape[1] + 1
    rows, columns = np.triu_indices(size)
    factors = np.where(rows == columns, 1.0, math.sqrt(2.0)) / size * _BELOW_ONE

    def vectors(block: Floats) -> Floats:
        u = np.column_stack([np.ones(len(block)), block])
        return u[:, rows] * u[:, columns] * factors

    return rounded_sum(complete, vectors, triangle(size - 1), spacing)


def moments_of(noised: NoisedSum, numbers: int) -> SecondMoments:
    """Return the sums of products that the vector stands for."""
    size = numbers + 1
    rows, columns = np.triu_indices(size)
    factors = np.where(rows == columns, 1.0, math.sqrt(2.0)) / size * _BELOW_ONE
    matrix, noise = np.zeros((size, size)), np.zeros((size, size))
    matrix[rows, columns] = matrix[columns, rows] = noised.total / factors
    noise[rows, columns] = noise[columns, rows] = noised.std / factors
    return SecondMoments(matrix, noise)
