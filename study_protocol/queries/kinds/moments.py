"""Mean and standard deviation of numbers."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.by_hospital import ByHospitalOnly, HospitalQuestion
from study_protocol.queries.centred import CENTRE, Centred, centred_where_open, protocol_of
from study_protocol.queries.counting import (
    Estimates,
    Floats,
    clip_estimates,
    counts,
    join_estimates,
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
from study_protocol.queries.kinds.tables import root_up
from study_protocol.queries.phrases import listed, number_in_words
from study_protocol.queries.second_moments import SecondMoments, covariances, means, rounded_sum, scaled_columns
from study_protocol.queries.variables import Number, Patients


class Moments(HospitalQuestion):
    """Of each of m numbers: how many patients have it, its mean, its standard deviation (with the divisor n - 1).

    One patient's vector has (1, y, y²) for each number, y clipped and scaled to [-1, 1], or zeros where it is missing:
    Δ = √(3m). With `centred` it has (1, y, y² - ½) instead: Δ = 3/2·√m (module `centred`). Each is rounded to the
    grid by half a step at most. So the sum of n patients moves by n/2 steps at most.
    """

    kind: Literal["moments"] = Field(description="what is asked")
    numbers: Annotated[tuple[Number, ...], Field(min_length=1, max_length=512)] = Field(
        description="columns, each with its public range"
    )
    centred: Centred = False
    by: ByHospitalOnly = None

    @model_validator(mode="after")
    def _has_each_number_once(self) -> Self:
        require_numbers_once(self.numbers)
        return self

    @property
    def block(self) -> int:
        return 3 * len(self.numbers)

    @property
    def sensitivity(self) -> float:
        # Half of a float is exact.
        return root_up(9 * len(self.numbers)) / 2 if self.centred else root_up(3 * len(self.numbers))

    @property
    def protocol(self) -> int:
        return max(super().protocol, protocol_of(self.centred))

    def in_form_for(self, protocol: int) -> Self:
        return centred_where_open(self, protocol)

    @property
    def whole(self) -> bool:
        return False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(*(number.column for number in self.numbers))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        return rounded_sum(
            scaled_columns(self.numbers, patients, self.included(patients)), self._vectors, self.block, spacing
        )

    def block_answer(self, noised: NoisedSum) -> Answer:
        generator = noised.generator()
        estimates = [
            _read(number, self._moments(sums, noised.std), generator)
            for number, sums in zip(self.numbers, noised.total.reshape(-1, 3), strict=True)
        ]
        patients = counts(noised.total[::3], np.full(len(self.numbers), noised.std**2))
        labels = [(label_of(number),) for number in self.numbers]
        unsure = any(np.isnan(mean.raw).any() for mean, _ in estimates)
        return Answer(
            tables=(
                numbers_table(
                    "mean", "mean", labels, join_estimates([mean for mean, _ in estimates]), patients.estimate
                ),
                numbers_table(
                    "standard-deviation",
                    "standard deviation",
                    labels,
                    join_estimates([deviation for _, deviation in estimates]),
                    patients.estimate,
                ),
                counts_table("patients", "patients with a value", labels, patients),
            ),
            notes=(NORMAL_SAMPLING, *((TOO_FEW,) if unsure else ())),
        )

    def _vectors(self, scaled: Floats) -> Floats:
        """Return the patients' vectors: (b, m) to (b, 3m)."""
        present = ~np.isnan(scaled)
        y = np.where(present, scaled, 0.0)
        squares = np.where(present, y * y - self._centre, 0.0)
        return np.stack([present.astype(np.float64), y, squares], axis=2).reshape(len(scaled), -1)

    @property
    def _centre(self) -> float:
        return CENTRE if self.centred else 0.0

    def _moments(self, sums: Floats, std: float) -> SecondMoments:
        """Return the sums of products of one number out of its three noised sums."""
        patients, total, squares = sums.tolist()
        matrix = np.array([[patients, total], [total, squares + self._centre * patients]])
        return SecondMoments(matrix, np.full((2, 2), std), self._centre)

    def in_words(self) -> str:
        numbers = listed(number_in_words(number) for number in self.numbers)
        return (
            f"How many have a value, the mean and the standard deviation of {numbers}, of patients{self.who_in_words()}"
        )


def _read(number: Number, moments: SecondMoments, generator: np.random.Generator) -> tuple[Estimates, Estimates]:
    """Return mean and standard deviation in the column's own unit."""
    if not moments.enough:
        return unknown_estimates(1), unknown_estimates(1)
    draws, size = moments.draws(generator), moments.patients

    def read(matrices: Floats) -> Floats:
        variance = covariances(matrices, size)[:, 0]
        # Below zero as well, where noise has made it so: an interval's end is cut after it was found.
        deviation = np.sign(variance) * np.sqrt(np.abs(variance))
        return np.concatenate([number.middle + number.half * means(matrices), number.half * deviation], axis=1)

    mean, deviation = split(draws.read(read), [1])
    return (
        clip_estimates(mean, np.array([number.low]), np.array([number.high])),
        clip_estimates(deviation, np.zeros(1), np.array([np.inf])),
    )
