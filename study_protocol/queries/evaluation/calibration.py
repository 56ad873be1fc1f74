"""Calibration slope and intercept from two sums over patients, beside the histogram of the predicted probabilities.

A model is recalibrated by logit P(y = 1) = logit p + a + b (logit p - c), where c is a public centre: b = 0 is a
calibration slope of 1. With l = logit p - c and h = l cut to ±H / max(p, 1 - p), the sums are Σ (y - p) and
Σ (y - p) h. Both have mean 0 if the model is calibrated, with any weights h of patients: the cut brings no bias. One
Newton step from a = b = 0 solves for a and b (Cox 1958). Its derivatives, sums of v = p(1 - p) times (1, l, h, h l),
are read off the histogram, with an average of each bin: they scale a drift, and move no model that is calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from study_protocol.queries.answer import AnswerTable
from study_protocol.queries.counting import NORMAL, STANDS_OUT, Estimates, Floats
from study_protocol.queries.evaluation.tables import GROUP, MEASURE, figures_table

CELLS: Final = 2
SLOPE, IN_THE_LARGE = "calibration slope", "calibration in the large"
NAME = "recalibration"
# H, and the weight of the first sum: under so much noise few large weights cost more than they tell. Chosen for
# outcomes of 10 to 30 % (`research.monitoring.power`).
_CUT, _INTERCEPT = 0.6, 0.4
_LEAST_PROBABILITY = 1e-4
# A logit is taken as evenly spread within a bin, and outer bins as so wide.
_OUTER_WIDTH, _POINTS = 1.5, 65
NOTES = (
    "Slope and calibration in the large are one Newton step away from a calibrated model. Far from 1 and 0 their "
    "direction is right, and their size is not.",
)


@dataclass(frozen=True)
class Recalibration:
    """The two sums of one question.

    weight  L2 norm of a patient's part, at most
    centre  a probability: c is its logit
    ends    (bins + 1) of the histogram, 0 and 1 included
    """

    weight: float
    centre: float
    ends: Sequence[float]

    def vectors(self, predicted: Floats, outcome: Floats) -> Floats:
        """Return each patient's part, shape (n, 2). Its norm is at most `weight`, for any values."""
        p = np.clip(predicted, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
        residual, (_, h) = outcome - p, self._terms(p)
        parts = np.stack([residual, residual * h], axis=1) * self._weights
        # Each is within its bound by arithmetic. Cut all the same, so that Δ is sure for every rounding.
        norms = np.linalg.norm(parts, axis=1, keepdims=True)
        return parts * np.minimum(1.0, self.weight * (1 - 2.0**-40) / np.maximum(norms, 1e-300))

    def read(self, sums: Floats, variance: float, bins: Floats, covariance: Floats) -> Estimates:
        """Return slope and calibration in the large, shape (2,). No estimates: noise may be all that there is.

        Args:
            sums: (2,) noised.
            variance: of the noise in each.
            bins: (bins,) noised patients in every bin.
            covariance: (bins, bins) of their noise.
        """
        score, noise = sums / self._weights, variance / self._weights**2
        derivatives = np.tensordot(bins, self._of_bins[:, :, :2], axes=1)
        if not self._are_told(derivatives, covariance):
            unknown, nothing = np.full(2, np.nan), np.full(2, np.inf)
            return Estimates(unknown, unknown, unknown, unknown, -nothing, nothing)
        inverse = np.linalg.inv(derivatives)
        shift, large = inverse @ score, float(score[0] / derivatives[0, 0])
        # The noise of a derivative counts as often as the drift that it is multiplied with.
        moved = self._of_bins[:, :, :2] @ shift
        of_score = np.diag(noise) + moved.T @ covariance @ moved
        information = np.tensordot(bins, self._of_bins[:, :, 2:], axes=1)
        by_noise, by_sampling = (
            math.sqrt(max(float(inverse[1] @ each @ inverse[1]), 0.0)) for each in (of_score, information)
        )
        scaled = self._of_bins[:, 0, 0] * large
        value = np.array([1 + shift[1], large])
        dp_error = np.array([by_noise, math.sqrt(noise[0] + float(scaled @ covariance @ scaled)) / derivatives[0, 0]])
        sampling = np.array([by_sampling, 1 / math.sqrt(derivatives[0, 0])])
        half = NORMAL * np.hypot(dp_error, sampling)
        return Estimates(value, value, dp_error, sampling, value - half, value + half)

    def assumed(self, middles: Floats, widths: Floats) -> Floats:
        """Return the average part of a patient whose probability lies in these bins and is right, shape (2,)."""
        without, having = (self.vectors(middles, np.full_like(middles, outcome)) for outcome in (0.0, 1.0))
        return (widths * (1 - middles)) @ without + (widths * middles) @ having

    @property
    def _logit(self) -> float:
        return math.log(self.centre) - math.log1p(-self.centre)

    @property
    def _weights(self) -> Floats:
        """Return what each sum is multiplied by: |y - p| ≤ 1 and |(y - p) h| ≤ H."""
        return np.array([_INTERCEPT, 1 / _CUT]) * (self.weight / math.hypot(_INTERCEPT, 1.0))

    def _terms(self, p: Floats) -> tuple[Floats, Floats]:
        """Return l and h."""
        logit, cut = np.log(p) - np.log1p(-p) - self._logit, _CUT / np.maximum(p, 1 - p)
        return logit, np.clip(logit, -cut, cut)

    @cached_property
    def _of_bins(self) -> Floats:
        """Return the average of v times ((1, l, 1, h), (h, h l, h, h²)) in every bin, shape (bins, 2, 4).

        The first two columns are the derivatives, and the last two the covariance of the sums in a calibrated model.
        """
        inner = np.log(self.ends[1:-1]) - np.log1p(-np.array(self.ends[1:-1]))
        edges = np.concatenate([[inner[0] - _OUTER_WIDTH], inner, [inner[-1] + _OUTER_WIDTH]])
        shares = (np.arange(_POINTS) + 0.5) / _POINTS
        p = 1 / (1 + np.exp(-(edges[:-1, None] + np.diff(edges)[:, None] * shares)))
        (logit, h), v = self._terms(p), p * (1 - p)
        rows = np.array([[v, v * logit, v, v * h], [v * h, v * h * logit, v * h, v * h * h]])
        return rows.mean(axis=-1).transpose(2, 0, 1)

    def _are_told(self, derivatives: Floats, covariance: Floats) -> bool:
        """Whether the first derivative and the determinant stand out of their noise."""
        (first, second), (third, fourth) = derivatives
        of_bins = self._of_bins
        gradient = fourth * of_bins[:, 0, 0] + first * of_bins[:, 1, 1]
        gradient = gradient - third * of_bins[:, 0, 1] - second * of_bins[:, 1, 0]
        determinant = first * fourth - second * third
        pairs = ((first, of_bins[:, 0, 0]), (determinant, gradient))
        return all(figure > STANDS_OUT * math.sqrt(float(each @ covariance @ each)) for figure, each in pairs)


def recalibration_table(group: str, estimates: Estimates, patients: float) -> AnswerTable:
    """Return the table of slope and calibration in the large."""
    return figures_table(
        NAME,
        "how well probabilities fit the outcome",
        [(GROUP, [group, group]), (MEASURE, [SLOPE, IN_THE_LARGE])],
        estimates,
        np.full(2, patients),
    )
