"""How far predicted numbers are from the outcome: bias, root mean square error, R².

The sums of every group are patients, Σ y, Σ (1 - y²), Σ e and Σ (e² - centre). y is the outcome scaled to [-1, 1], and
e the error over the largest one. The centre is 0, or ½ in centred questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from study_protocol.queries.answer import ESTIMATE, HIGH, LOW, SIMULATIONS, Answer, Plot
from study_protocol.queries.counting import (
    STANDS_OUT,
    Estimates,
    Floats,
    clip_estimates,
    counts,
    join_estimates,
    split,
    unknown_estimates,
)
from study_protocol.queries.evaluation.tables import (
    GROUP,
    MEASURE,
    NOT_EVALUATED,
    counts_by,
    figures_table,
    repeated,
    stacked,
)
from study_protocol.queries.groups import GroupSum
from study_protocol.queries.second_moments import SecondMoments, simulate_estimates

MEAN, BIAS, RMSE, EXPLAINED = "mean outcome", "mean error", "root mean square error", "R²"
MEASURES = (MEAN, BIAS, RMSE, EXPLAINED)
NOTES = (
    "An error is the prediction minus the outcome. Outcomes and errors beyond their ranges count as the ends of these.",
    "The sampling errors of the root mean square error and of R² are those of normal distributions and of a model "
    "whose predictions are right on average; where errors have long tails, they are larger. R² has no estimate, or its "
    "interval no lower end, where the noise may be all that there is of the outcome's spread.",
)
TOO_FEW = "Where no estimate is shown, there are too few patients for so much noise: it would divide by nearly zero."
# An R² below this divides by nearly no spread of the outcome.
_NO_SPREAD = -1e6


@dataclass(frozen=True)
class NumberScales:
    """low, high: range of the outcome. largest: of the error. centre: what was taken off each e² before the sum."""

    low: float
    high: float
    largest: float
    centre: float = 0.0


@dataclass(frozen=True)
class Errors:
    """One group's sums. Raw figures are not cut: below zero, a root is that of the absolute value, with its sign.

    Attributes:
        values: (5,) the sums.
        variance: of the noise in each.
        scales: of outcome and error.
    """

    values: Floats
    variance: float
    scales: NumberScales

    @property
    def enough(self) -> bool:
        return float(self.values[0]) > max(STANDS_OUT * np.sqrt(self.variance), 2.0)

    def figures(self, generator: np.random.Generator) -> Estimates:
        """Return mean outcome, mean error, root mean square error and R², shape (4,)."""
        largest = self.scales.largest
        lower_bounds = np.array([self.scales.low, -largest, 0.0, -np.inf])
        upper_bounds = np.array([self.scales.high, largest, largest, 1.0])
        if not self.enough:
            return replace(unknown_estimates(4), low=lower_bounds, high=upper_bounds)
        noise = np.sqrt(self.variance) * generator.standard_normal((SIMULATIONS, 5))
        estimates = clip_estimates(
            simulate_estimates(self.values, noise, self._sampling(generator), self._read), lower_bounds, upper_bounds
        )
        # It divides by the spread of the outcome: where noise may have left none, there is no lowest R².
        low = np.where(estimates.low < _NO_SPREAD, -np.inf, estimates.low)
        if estimates.raw[-1] >= _NO_SPREAD and self._varies:
            return replace(estimates, low=low)
        bounded, nothing = (
            split(estimates, [3])[0],
            replace(unknown_estimates(1), low=lower_bounds[-1:], high=upper_bounds[-1:]),
        )
        return join_estimates([replace(bounded, low=low[:-1]), nothing])

    @property
    def _varies(self) -> bool:
        """Whether the outcome's spread is above 3 deviations of its noise, to first order in it."""
        count, y, rest = (float(value) for value in self.values[:3])
        centre, remainder = y / count, rest / count
        parts = (1.0, 2 * centre, remainder + 2 * centre**2)
        deviation = np.sqrt(self.variance) / count * float(np.linalg.norm(parts))
        return 1 - remainder - centre**2 > STANDS_OUT * deviation

    def _read(self, sums: Floats) -> Floats:
        """Return the figures of each draw: (s, 5) to (s, 4)."""
        low, high, largest = self.scales.low, self.scales.high, self.scales.largest
        count = sums[:, 0]
        # The noise of the number of patients is in the mean square as well: both are read off the same draw.
        y, error, square = sums[:, 1] / count, sums[:, 3] / count, sums[:, 4] / count + self.scales.centre
        half = (high - low) / 2
        spread = (1 - sums[:, 2] / count - y**2) * half**2
        # Noise may have left no spread at all: then there is none to explain.
        explained = 1 - square * largest**2 / np.maximum(spread, 1e-12 * half**2)
        root = largest * np.sign(square) * np.sqrt(np.abs(square))
        return np.stack([(low + high) / 2 + half * y, largest * error, root, explained], axis=1)

    def _sampling(self, generator: np.random.Generator) -> Floats:
        """Return draws as of a normal law of outcome and error, shape (SIMULATIONS, 5).

        The correlation of the two was not asked. A model that is right on average has correlation² 1 - R². A smaller
        correlation gives R² a larger error, so at most a half is assumed.
        """
        count, y, rest, error, square = self.values.tolist()
        square += self.scales.centre * count
        explained = float(self._read(self.values[None])[0, 3])
        spread = max(1 - rest / count - (y / count) ** 2, 0.0)
        scatter = max(square / count - (error / count) ** 2, 0.0)
        together = -np.sqrt(np.clip(1 - explained, 0.0, 0.5) * spread * scatter)
        mean = np.array([1.0, y / count, error / count])
        covariance = np.array([[0.0, 0.0, 0.0], [0.0, spread, together], [0.0, together, scatter]])
        moments = SecondMoments(count * (np.outer(mean, mean) + covariance * (count - 1) / count), np.zeros((3, 3)))
        draws = moments.draws(generator).sampling
        parts = (draws[:, 0, 0], draws[:, 0, 1], draws[:, 0, 0] - draws[:, 1, 1], draws[:, 0, 2], draws[:, 2, 2])
        return np.stack(parts, axis=1)


def read_numbers(
    sums: Sequence[GroupSum], scales: NumberScales, left_out: Estimates, generator: np.random.Generator
) -> Answer:
    """Return the answer of an evaluation of numbers.

    Args:
        sums: of each group, all patients first, (5,).
        left_out: patients who could not be evaluated.
    """
    groups = [group_sum.group for group_sum in sums]
    errors = [Errors(group_sum.values, group_sum.variance, scales) for group_sum in sums]
    people = [counts(group_sum.values[:1], np.array([group_sum.variance])) for group_sum in sums]
    warnings = () if all(group_sum.enough for group_sum in errors) else (TOO_FEW,)
    return Answer(
        tables=(
            figures_table(
                "performance",
                "how good the model is",
                [(GROUP, repeated(groups, len(MEASURES))), (MEASURE, repeated(MEASURES, 1, len(groups)))],
                join_estimates([group_sum.figures(generator) for group_sum in errors]),
                stacked([np.repeat(group_sum.estimate, len(MEASURES)) for group_sum in people]),
                Plot(kind="points", x=MEASURE, y=ESTIMATE, low=LOW, high=HIGH, by=GROUP),
            ),
            counts_by(
                "patients",
                "patients evaluated",
                [(GROUP, [*groups, NOT_EVALUATED])],
                join_estimates([*people, left_out]),
            ),
        ),
        notes=(*NOTES, *warnings),
    )
