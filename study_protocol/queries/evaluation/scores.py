"""Shares, means and areas from a histogram of predicted probabilities by outcome, each with errors and interval.

Tables are (2, bins): of patients without and with the outcome, bins of the probability from low to high.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from study_protocol.queries.answer import SIMULATIONS
from study_protocol.queries.counting import Estimates, Floats, counts, ends_within
from study_protocol.queries.monotone import isotonic
from study_protocol.queries.ratios import Quadratic, of_share, of_weights, ratios
from study_protocol.queries.second_moments import resample_counts, simulate_estimates
from study_protocol.queries.tree import Tree

# An area needs more patients with and without the outcome than this many standard deviations of noise.
_MIN_PATIENTS = 3.0


@dataclass(frozen=True)
class RatioWeights:
    """Ratios of weighted counts: Σ above·table / Σ below·table. (n, 2, bins) each.

    share: above is below or zero, and both are 0 or 1, so that the ratio is a share of patients
    """

    above: Floats
    below: Floats
    share: bool = True


@dataclass(frozen=True)
class ScoreHistogram:
    """One group's histogram.

    raw         (2, bins) unbiased, perhaps below zero
    fitted      the same made to fit. None is below zero. Cumulated from below it rises and is near that of raw
    variance    of the noise in every node of the tree that raw was fitted from
    covariance  (bins, bins) of raw's noise in one row, for variance 1
    """

    raw: Floats
    fitted: Floats
    variance: float
    tree: Tree
    covariance: Floats

    @classmethod
    def of(cls, raw: Floats, variance: float, tree: Tree, covariance: Floats) -> ScoreHistogram:
        return cls(raw, np.stack([fit_rising(row) for row in raw]), variance, tree, covariance)

    def ratio(self, weights: RatioWeights, low: Floats | float = 0.0, high: Floats | float = 1.0) -> Estimates:
        """Return estimates of the fitted histogram, with errors and intervals of the raw one."""
        above, below = weights.above, weights.below
        numerator, denominator = total(above, self.raw), total(below, self.raw)
        smeared = self.variance * (below @ self.covariance)
        noise = Quadratic(
            self.variance * total(above @ self.covariance, above), -2 * total(smeared, above), total(smeared, below)
        )
        squares = Quadratic(
            *(total(coefficients, self.fitted) for coefficients in (above**2, -2 * above * below, below**2))
        )
        sampling = of_share(denominator) if weights.share else of_weights(numerator, denominator, squares)
        estimates = ratios(numerator, denominator, noise, sampling, low, high)
        patients = self.patients(weights)
        fitting = total(above, self.fitted) / np.where(patients > 0, patients, np.nan)
        estimate = np.where(
            np.isnan(estimates.estimate) | np.isnan(fitting), estimates.estimate, np.clip(fitting, low, high)
        )
        return replace(estimates, estimate=estimate)

    def patients(self, weights: RatioWeights) -> Floats:
        """Return how many each ratio rests on, shape (n,)."""
        return total(weights.below, self.fitted)

    def cell_counts(self) -> Estimates:
        """Return patients in every cell, shape (2 · bins,)."""
        noise = np.tile(self.variance * np.diagonal(self.covariance), 2)
        return counts(self.raw.ravel(), noise, self.fitted.ravel())

    def in_all(self) -> Estimates:
        """Return the number of all patients, shape (1,)."""
        return counts(np.array([self.raw.sum()]), np.array([2 * self.variance * float(self.covariance.sum())]))

    def areas(self, generator: np.random.Generator) -> Estimates:
        """Return the area under the ROC curve, its bounds and the average precision, shape (4,).

        The area is that of the binned scores. The bounds are the least and most that it can be for the scores
        themselves.
        """
        threshold = _MIN_PATIENTS * np.sqrt(self.variance * float(self.covariance.sum()))
        if bool((self.raw.sum(axis=1) <= max(threshold, 1e-6)).any()):
            nothing = np.full(4, np.nan)
            return Estimates(nothing, nothing, nothing, nothing, np.zeros(4), np.ones(4))
        nodes = generator.standard_normal((SIMULATIONS, 2, sum(self.tree.sizes)))
        noise = np.sqrt(self.variance) * self.tree.least_squares(nodes)
        sampling = resample_counts(self.fitted, generator)
        estimates = simulate_estimates(self.raw, noise, sampling, _areas)
        low, high = ends_within(estimates.raw, estimates.low, estimates.high, 0.0, 1.0)
        return replace(estimates, estimate=np.clip(_areas(self.fitted[None])[0], 0.0, 1.0), low=low, high=high)


def total(weights: Floats, table: Floats) -> Floats:
    """Return the weighted sums: (n, 2, bins) and (2, bins) or (n, 2, bins) to (n,)."""
    return (weights * table).sum(axis=(-2, -1))


def fit_rising(counts: Floats) -> Floats:
    """Return the counts whose cumulated sum rises from 0 to the same total and is nearest to the one given."""
    whole = max(float(counts.sum()), 0.0)
    cumulated = np.clip(isotonic(np.cumsum(counts)[:-1]), 0.0, whole)
    return np.diff(cumulated, prepend=0.0, append=whole)


def _areas(tables: Floats) -> Floats:
    """Return the areas of each table: (s, 2, bins) to (s, 4)."""
    without, having = tables[:, 0], tables[:, 1]
    # A draw may have no patient: such draws lie beyond the ends of the interval.
    nobody = 1e-9
    everybody = np.maximum(having.sum(axis=1), nobody)
    pairs = np.maximum(without.sum(axis=1), nobody) * everybody
    below = np.cumsum(without, axis=1) - without
    won, tied = (having * below).sum(axis=1), (having * without).sum(axis=1)
    # From high scores to low: of those at least so high, the share that has the outcome.
    true_positives = np.cumsum(having[:, ::-1], axis=1)[:, ::-1]
    called = np.cumsum(tables.sum(axis=1)[:, ::-1], axis=1)[:, ::-1]
    precision = np.clip(true_positives / np.maximum(called, nobody), 0.0, 1.0)
    average = (having * precision).sum(axis=1) / everybody
    return np.stack([(won + tied / 2) / pairs, won / pairs, (won + tied) / pairs, average], axis=1)
