"""Calibration slope and intercept from two sums over patients, beside the histogram of the predicted probabilities.

A model is recalibrated by logit P(y = 1) = logit p + a + b (logit p - c), where c is a public centre: b = 0 is a
calibration slope of 1. With l = logit p - c and h = l cut to ±H / max(p, 1 - p), the sums are Σ (y - p) and
Σ (y - p) h. Both have mean 0 if the model is calibrated, with any weights h of patients: the cut brings no bias. One
Newton step from a = b = 0 solves for a and b (Cox 1958). Its derivatives, sums of v = p(1 - p) times (1, l, h, h l),
are read off the histogram, with an average of each bin: they scale a drift, and move no model that is calibrated. The
error by sampling is the most that the counts by bin and outcome allow, wherever the predictions of a calibrated model
lie in their bins.
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
# For the derivatives a logit is taken as evenly spread within a bin, and outer bins as so wide.
_OUTER_WIDTH, _POINTS = 1.5, 33
# Standard deviations of the noise of the counts that the variance by sampling is raised by.
_MARGIN = 0.5
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

    def read(self, sums: Floats, variance: float, counts: Floats, covariance: Floats) -> Estimates:
        """Return slope and calibration in the large, shape (2,). No estimates: noise may be all that there is.

        Args:
            sums: (2,) noised.
            variance: of the noise in each.
            counts: (2, bins) noised patients without and with the outcome in every bin.
            covariance: (bins, bins) of the noise in each row of counts.
        """
        score, noise = sums / self._weights, variance / self._weights**2
        derivatives, both = np.tensordot(counts.sum(axis=0), self._of_bins, axes=1), 2 * covariance
        if not self._are_told(derivatives, both):
            unknown, nothing = np.full(2, np.nan), np.full(2, np.inf)
            return Estimates(unknown, unknown, unknown, unknown, -nothing, nothing)
        # Slope and calibration in the large are these rows times the two sums.
        rows = np.array([np.linalg.inv(derivatives)[1], [1 / derivatives[0, 0], 0.0]])
        shift, large = np.linalg.solve(derivatives, score), float(score[0] / derivatives[0, 0])
        # The noise of a derivative counts as often as the drift that it is multiplied with.
        moved, scaled = self._of_bins @ shift, self._of_bins[:, 0, 0] * large
        of_score = np.diag(noise) + moved.T @ both @ moved
        by_noise = [float(rows[0] @ of_score @ rows[0]), (noise[0] + scaled @ both @ scaled) * rows[1, 0] ** 2]
        value, dp_error = np.array([1 + shift[1], large]), np.sqrt(by_noise)
        sampling = np.sqrt([self._most_variance(row, counts, covariance) for row in rows])
        half = NORMAL * np.hypot(dp_error, sampling)
        return Estimates(value, value, dp_error, sampling, value - half, value + half)

    def _most_variance(self, row: Floats, counts: Floats, covariance: Floats) -> float:
        """Return the most that the variance by sampling of `row` times the sums can be, if the model is calibrated.

        A patient's part has the variance g(p) = p(1 - p)(row · (1, h))². If g(p) ≤ α (1 - p) + β p in a bin, the
        bin's patients have at most α times those without the outcome, and β times those with it, on average. This
        holds wherever they lie in the bin. The line is the lowest for the counts, with a margin for their noise.
        """
        p, h = self._points
        g = p * (1 - p) * (row[0] + row[1] * h) ** 2
        # Slopes between neighbours, and from either end: a line that lies on g has nearly one of these.
        ends = [(each[:, 1:] - each[:, :-1], each[:, 1:] - each[:, :1], each[:, -1:] - each[:, :-1]) for each in (g, p)]
        rises, runs = (np.concatenate(each, axis=1) for each in ends)
        slopes = rises / np.maximum(runs, 1e-300)
        without = (g[:, None, :] - slopes[:, :, None] * p[:, None, :]).max(axis=2)
        having = without + slopes
        deviations = np.sqrt(np.diag(covariance))[:, None] * np.hypot(without, having)
        lines = without * counts[0][:, None] + having * counts[1][:, None] + _MARGIN * deviations
        chosen = (np.arange(len(p)), lines.argmin(axis=1))
        pair = np.array([without[chosen], having[chosen]])
        of_noise = math.sqrt(float(np.sum(pair @ covariance * pair)))
        # No less than the least that a bin's patients have.
        least = np.maximum(counts.sum(axis=0), 0.0) * g.min(axis=1)
        return float(np.maximum(np.sum(pair * counts, axis=0), least).sum()) + _MARGIN * of_noise

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
    def _edges(self) -> Floats:
        """Return the ends of the bins on the logit scale, the outer ones cut, shape (bins + 1)."""
        inner = np.log(self.ends[1:-1]) - np.log1p(-np.array(self.ends[1:-1]))
        return np.concatenate([[inner[0] - _OUTER_WIDTH], inner, [inner[-1] + _OUTER_WIDTH]])

    @cached_property
    def _of_bins(self) -> Floats:
        """Return the average of v times ((1, l), (h, h l)) in every bin, shape (bins, 2, 2)."""
        shares = (np.arange(_POINTS) + 0.5) / _POINTS
        p = 1 / (1 + np.exp(-(self._edges[:-1, None] + np.diff(self._edges)[:, None] * shares)))
        (logit, h), v = self._terms(p), p * (1 - p)
        return np.array([[v, v * logit], [v * h, v * h * logit]]).mean(axis=-1).transpose(2, 0, 1)

    @cached_property
    def _points(self) -> tuple[Floats, Floats]:
        """Return probabilities from end to end of every bin, and their h, each of shape (bins, points)."""
        ends = np.clip(self.ends, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
        logits = np.log(ends) - np.log1p(-ends)
        p = 1 / (1 + np.exp(-np.linspace(logits[:-1], logits[1:], _POINTS, axis=1)))
        return p, self._terms(p)[1]

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
