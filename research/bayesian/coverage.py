"""How often a posterior's 90 % intervals hold the truth, on real inputs with labels drawn from a known model.

The truth is a logistic regression fitted to a data set's own labels, without noise; new labels are drawn from it, and
the posterior is found from these. Of the records a run does not see, the interval of the score x·w either holds the
true score or not; of the weights likewise, where the truth says what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from private_learning.tasks.bayesian import start_log_std
from research.bayesian.central_inference import Posterior, Recipe, derivatives, fitted
from research.bayesian.survey_data import SurveyRecords, SurveySplit

Floats = npt.NDArray[np.float64]
# Of a standard normal variable: 90 % lie within.
_HALF = 1.6448536269514722
# Ten already agree to many digits.
_NEWTON_STEPS = 25


@dataclass(frozen=True)
class Coverage:
    """Shares of test records whose true score lies in its interval, means over seeds.

    exact     the variational posterior itself, without noise
    private   the private run's posterior as it is released
    widened   the same, with the variance that the noise may have added, a public number
    """

    exact: float
    private: float
    widened: float


def measured(splits: Sequence[SurveySplit], recipe: Recipe, noise_multiplier: float) -> Coverage:
    """One split for each seed 0, 1, …"""
    intervals = [_measure_once(split, seed, recipe, noise_multiplier) for seed, split in enumerate(splits)]
    return Coverage(*np.mean(intervals, axis=0).tolist())


def _measure_once(split: SurveySplit, seed: int, recipe: Recipe, noise_multiplier: float) -> tuple[float, float, float]:
    truth = _truth(split.train, recipe.prior_std)
    random = np.random.default_rng([seed, 90])
    chances = 1 / (1 + np.exp(-split.train.inputs @ truth))
    synthetic = SurveyRecords(split.train.inputs, (random.random(len(chances)) < chances).astype(np.int64))
    exact = optimum(synthetic, recipe.prior_std)
    private = fitted(synthetic, recipe, noise_multiplier, seed)
    scores, added = split.test.inputs @ truth, noise_std(recipe, noise_multiplier, len(synthetic))
    return (
        coverage_of(exact, split.test.inputs, scores),
        coverage_of(private, split.test.inputs, scores),
        coverage_of(private, split.test.inputs, scores, added=added),
    )


def coverage_of(posterior: Posterior, inputs: Floats, scores: Floats, *, added: float = 0.0) -> float:
    """Share of records whose score lies in the 90 % interval; added: standard deviation of the noise in each weight."""
    means, stds = posterior.scores(inputs)
    wide = np.sqrt(stds**2 + added**2 * np.square(inputs - posterior.centre).sum(axis=1))
    return float((np.abs(scores - means) <= _HALF * wide).mean())


def noise_std(recipe: Recipe, noise_multiplier: float, records: int) -> float:
    """Standard deviation, at most, of what the noise moved a weight by after all steps; a public number.

    Each step's noise of η σ C/n is carried on by its momentum, to η σ C/(n(1 − m)) in the end; a convex loss only draws
    it back.
    """
    each = recipe.learning_rate / (1 - recipe.momentum) * noise_multiplier * recipe.clip_norm / records
    return each * recipe.steps**0.5


def optimum(records: SurveyRecords, prior_std: float) -> Posterior:
    """The variational posterior: where μ/s² = Σ x (y − E σ) and e^{−2ρ} = 1/s² + Σ x² E σ(1 − σ), by Newton's steps."""
    size = records.inputs.shape[1]
    at = Posterior(np.zeros(size), np.full(size, start_log_std(prior_std, len(records))), np.zeros(size))
    for _ in range(_NEWTON_STEPS):
        slope, curvature = derivatives(records, at)
        hessian = (records.inputs * curvature[:, None]).T @ records.inputs + np.eye(size) / prior_std**2
        step = np.linalg.solve(hessian, records.inputs.T @ slope + at.mean / prior_std**2)
        precision = np.square(records.inputs).T @ curvature + prior_std**-2
        at = Posterior(at.mean - step, -0.5 * np.log(precision), at.centre)
    return at


def _truth(records: SurveyRecords, prior_std: float) -> Floats:
    """(d,) the most probable weights under the prior."""
    model = LogisticRegression(C=prior_std**2, fit_intercept=False, max_iter=2000, tol=1e-6)
    return model.fit(records.inputs, records.labels).coef_[0]
