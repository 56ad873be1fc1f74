"""One step of a regression: one patient's vector at public coefficients, and the noised sums that are read back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.counting import Floats
from study_protocol.queries.regression.design import Design, triangle_of
from study_protocol.queries.regression.estimates import ReleasedSums
from study_protocol.queries.regression.families import FamilyName, Scales, excess_at_top, parts, scales
from study_protocol.queries.regression.start import at_level
from study_protocol.queries.second_moments import rounded_sum
from study_protocol.queries.variables import Indicator, Patients, Range

# Of a frame, in which ‖u‖² is about the number of columns: where the weight begins to fall.
_FRAME_SQUARE = {"logistic": 2.0, "poisson": 1.5, "linear": 1.4}
# The part of R² that one category may fill.
_OF_ONE_CATEGORY = 0.6
# Of coefficients and frames: with them no number overflows.
LARGEST = 1e6


@dataclass(frozen=True)
class Model:
    """The public numbers of one step.

    at     coefficients on the scaled design u: slopes, then one intercept or one of each hospital. Empty: all 0
    frame  public centre m (p,) and matrix L (p, p), row by row: the sums are over v = (L(u - m), 1). Empty: over u
    """

    family: FamilyName
    outcome: Range | Indicator
    design: Design
    offset: Range | None
    is_exposure: bool
    weights: Range | None
    largest_predictor: float
    hospitals: tuple[str, ...]
    at: tuple[float, ...]
    frame: tuple[float, ...]

    @property
    def slopes(self) -> int:
        return len(self.design.labels)

    @property
    def size(self) -> int:
        return self.slopes + max(1, len(self.hospitals))

    @property
    def high(self) -> float:
        """The largest residual."""
        # A linear regression has the outcome on [-1, 1], less one number for all.
        return 1 + abs(self.at[-1] if self.at else 0.0) if self.family == "linear" else self.outcome.high

    @property
    def block(self) -> int:
        """Numbers of one patient's vector: count, gradient, information, w·r² but of a yes or no, w·z of a count."""
        columns = self.slopes + 1
        return 1 + columns + columns * (columns + 1) // 2 + {"logistic": 0, "poisson": 2, "linear": 1}[self.family]

    @property
    def shared(self) -> int:
        """Numbers without the intercept, which all hospitals have in one place."""
        return self.block - self.slopes - 2

    @property
    def cells(self) -> int:
        return self.shared + max(1, len(self.hospitals)) * (self.block - self.shared)

    @property
    def is_at_zero(self) -> bool:
        """Whether every patient's linear predictor is 0."""
        return not self.at and self.offset is None

    @property
    def radius_square(self) -> float:
        """R²."""
        return _FRAME_SQUARE[self.family] * (self.slopes + 1) if self.frame else self.design.square

    @property
    def scales(self) -> Scales:
        return scales(self.family, self.radius_square, self.high, at_zero=self.is_at_zero)

    @property
    def frame_matrix(self) -> Floats:
        """(D, D) F with v = F·u for one patient's row, intercepts last."""
        slopes, matrix = self.slopes, np.eye(self.size)
        if self.frame:
            centre, linear = self._frame
            matrix[:slopes, :slopes] = linear
            matrix[:slopes, slopes:] = -(linear @ centre)[:, None]
        return matrix

    @property
    def _frame(self) -> tuple[Floats, Floats]:
        numbers = np.array(self.frame)
        return numbers[: self.slopes], numbers[self.slopes :].reshape(self.slopes, self.slopes)

    @property
    def own_units(self) -> Floats:
        """(D, D): coefficients of the scaled design to those in the columns' own units."""
        transposed, slopes, matrix = self.design.units.T, self.slopes, np.eye(self.size)
        matrix[:slopes, :slopes] = transposed[:slopes, :slopes]
        matrix[slopes:, :slopes] = transposed[-1, :slopes]
        return matrix

    def total(self, patients: Patients, included: NDArray[np.bool_], spacing: float) -> NDArray[np.int64]:
        """Return the sum over patients with every value, in grid steps, shape (block,). Raises UnreadableColumn."""
        optional = [number for number in (self.offset, self.weights) if number is not None]
        # Back in their own units: a logarithm or a product of scaled numbers would be another model.
        numbers = [number.scaled(patients) * number.half + number.middle for number in optional]
        outcomes = self.outcome.scaled(patients)
        if self.family != "linear":
            outcomes = (outcomes + 1) / 2 * self.outcome.high
        rows = np.column_stack([self.design.rows(patients), outcomes, *numbers])
        return rounded_sum(rows[included & ~np.isnan(rows).any(axis=1)], self._vectors, self.block, spacing)

    def _vectors(self, rows: Floats) -> Floats:
        """Return the vectors of these patients: count, slopes, their triangle, w·r², w·z, what has the intercept."""
        columns, factors = self.slopes + 1, self.scales
        u, outcome, rest = rows[:, :columns], rows[:, columns], rows[:, columns + 1 :]
        predictors = self._predictors(u, rest)
        residuals, curvatures = parts(self.family, outcome, predictors, self.high)
        if self.frame:
            centre, linear = self._frame
            u = np.column_stack([_products(u[:, :-1] - centre, linear), u[:, -1]])
        # Of the patient's own predictors alone, so that the estimating equation keeps its root.
        weights = np.minimum(1.0, self.radius_square / (u**2).sum(axis=1))
        if self.weights is not None:
            weights = weights * np.minimum(rest[:, -1] / self.weights.high, 1.0)
        gradient = factors.gradient * (weights * residuals)[:, None] * u
        below, across, doubles = triangle_of(columns)
        information = factors.information * doubles * (weights * curvatures)[:, None] * u[:, below] * u[:, across]
        more = [factors.square * (weights * residuals**2)[:, None]] if factors.square else []
        if factors.top:
            more.append(factors.top * (weights * excess_at_top(outcome, predictors, self.high))[:, None])
        slopes = columns * (columns - 1) // 2
        counts = np.full((len(u), 1), factors.count)
        return np.concatenate(
            [counts, gradient[:, :-1], information[:, :slopes], *more, gradient[:, -1:], information[:, slopes:]],
            axis=1,
        )

    def _predictors(self, u: Floats, rest: Floats) -> Floats:
        predictor = _products(u, np.array([self.at or np.zeros(u.shape[1])]))[:, 0]
        if self.offset is not None:
            predictor = predictor + (np.log(rest[:, 0]) if self.is_exposure else rest[:, 0])
        return np.clip(predictor, -self.largest_predictor, self.largest_predictor)

    def placed(self, total: NDArray[np.int64], hospital: str) -> NDArray[np.int64]:
        """Return a hospital's sum in the whole vector: what has the intercept in it stands in the hospital's place."""
        # Zeros at the others' places, so that a sum over hospitals is one long vector and a mask covers all of it.
        by_hospital = np.zeros((len(self.hospitals), self.block - self.shared), np.int64)
        by_hospital[self.hospitals.index(hospital)] = total[self.shared :]
        return np.concatenate([total[: self.shared], by_hospital.ravel()])

    def answering(self, noised: NoisedSum) -> tuple[Model, NoisedSum]:
        """Return model and sum of the hospitals that are in it: the others have no intercept to estimate."""
        places = self._answering(noised)
        if len(places) == len(self.hospitals):
            return self, noised
        shared, by_hospital = noised.total[: self.shared], noised.total[self.shared :]
        kept = by_hospital.reshape(len(self.hospitals), -1)[places].ravel()
        intercepts = self.at[self.slopes :]
        at = (*self.at[: self.slopes], *(intercepts[place] for place in places if intercepts))
        hospitals = tuple(self.hospitals[place] for place in places)
        return replace(self, hospitals=hospitals, at=at), replace(noised, total=np.concatenate([shared, kept]))

    def _answering(self, noised: NoisedSum) -> list[int]:
        answered = self.hospitals if noised.answered is None else noised.answered
        return [place for place, hospital in enumerate(self.hospitals) if hospital in answered]

    def released(self, noised: NoisedSum) -> ReleasedSums:
        """Return the noised gradient and information of all hospitals, in the frame."""
        slopes, factors, hospitals = self.slopes, self.scales, max(1, len(self.hospitals))
        shared, by_hospital = noised.total[: self.shared], noised.total[self.shared :].reshape(hospitals, -1)
        below, across, doubles = triangle_of(slopes)
        matrix, noised_at = np.zeros((self.size, self.size)), np.zeros((self.size, self.size), bool)
        # Off the diagonal each number was sent once, times √2, so that its norm is that of the whole matrix.
        matrix[below, across] = shared[1 + slopes : 1 + slopes + len(below)] / doubles
        matrix[slopes:, :slopes] = by_hospital[:, 1:-1] / math.sqrt(2.0)
        places = np.arange(slopes, self.size)
        matrix[places, places] = by_hospital[:, -1]
        noised_at[:slopes, :] = noised_at[:, :slopes] = noised_at[places, places] = True
        return ReleasedSums(
            gradient=np.concatenate([shared[1 : 1 + slopes], by_hospital[:, 0]]) / factors.gradient,
            information=(matrix + np.tril(matrix, -1).T) / factors.information,
            gradient_noise=noised.std / factors.gradient,
            information_noise=noised.std / factors.information,
            noised=noised_at,
            slopes=slopes,
            square=float(shared[1 + slopes + len(below)]) / factors.square if factors.square else 0.0,
            square_noise=noised.std / factors.square if factors.square else 0.0,
            top=float(shared[-1]) / factors.top if factors.top else 0.0,
            top_noise=noised.std / factors.top if factors.top else 0.0,
        )

    @property
    def coefficients(self) -> Floats:
        """(D,) `at`."""
        return np.array(self.at or np.zeros(self.size))

    def next_at(self, noised: NoisedSum) -> Floats:
        """Return the coefficients at which the next step is asked, on the scaled design, shape (D,).

        A hospital that is not in the sum goes on from the median of the other intercepts.
        """
        model, kept = self.answering(noised)
        following = model._next_at(kept)
        if len(following) == self.size:
            return following
        slopes, others = following[: self.slopes], following[self.slopes :]
        intercepts = np.full(len(self.hospitals), np.median(others))
        intercepts[self._answering(noised)] = others
        return np.concatenate([slopes, intercepts])

    def _next_at(self, noised: NoisedSum) -> Floats:
        released, at = self.released(noised), self.coefficients
        if self.family == "linear":
            # What is taken off everybody's outcome leaves the sums exact, and less to multiply their noise with.
            return np.where(np.arange(self.size) >= self.slopes, released.mean, 0.0)
        if not self.at:
            released, level = at_level(self.family, released, self.high, is_at_zero=self.is_at_zero)
            # A first step from the share of the outcome is much nearer to the end than one from 0.
            at = at + np.where(np.arange(self.size) >= self.slopes, level, 0.0)
        return np.clip(at + self.frame_matrix.T @ released.newton(), -LARGEST, LARGEST)

    def next_frame(self, noised: NoisedSum) -> tuple[Floats, Floats]:
        """Return centre and matrix of the next step's frame: there every direction varies by about as much.

        So noise that is equal in all directions costs each direction the same, at any correlation of the predictors.
        It is made once, from the first step: its weights are the mildest. A rare category would have a long row there
        and a small weight. So its column is not stretched beyond a part of R.
        """
        if self.frame:
            return self._frame
        spans = self.design.spans**2 / (_OF_ONE_CATEGORY * _FRAME_SQUARE[self.family] * (self.slopes + 1))
        model, kept = self.answering(noised)
        whitening = model.released(kept).whitening(spans)
        # Too few patients to know a frame: the next step is asked as the first one was.
        if whitening is None:
            return np.zeros(self.slopes), np.eye(self.slopes)
        centre, matrix = whitening
        return np.clip(centre, -LARGEST, LARGEST), np.clip(matrix, -LARGEST, LARGEST)


def _products(rows: Floats, matrix: Floats) -> Floats:
    """Return rows · matrixᵀ, shape (n, k).

    A library's product rounds one row otherwise beside other rows, so that one patient would move another's vector.
    """
    products = np.zeros((len(rows), len(matrix)))
    for column, factors in zip(rows.T, matrix.T, strict=True):
        products += column[:, None] * factors
    return products
