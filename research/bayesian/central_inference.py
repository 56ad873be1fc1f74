"""Private variational inference by one data holder, on whole data sets at once: the task's mathematics in NumPy.

The model, its loss and its prior are those of the task `bayesian-logistic-regression`; every record's gradient has a
closed form, which a test holds against `PerRecordGradients`. Sums are noised by the SDK's own sampler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from accounting import ClassicalAccountant, calibrate_noise
from private_learning.gradients import ClippedSum
from private_learning.tasks.bayesian import start_log_std
from private_learning.tasks.bayesian_model import NODES
from private_learning.training.noise import add_noise
from research.bayesian.survey_data import SurveyRecords
from study_protocol.randomness.source import RandomSource, SeededSource
from study_protocol.study.prior import Prior

Floats = npt.NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(NODES)
_WEIGHTS = _WEIGHTS / math.sqrt(2 * math.pi)
_ROWS = 4096
SAMPLE = 2000
# Keeps the noise of two experiments with one seed apart.
_SEED_OFFSET = 77_000_000


@dataclass(frozen=True)
class Recipe:
    """What is public before a run.

    steps          of the whole data, each noised and charged
    clip_norm      L2 bound on one record's gradient
    learning_rate  of a step against the noised mean gradient and the prior's
    momentum       what stays of the step before (Polyak)
    averaged       the last so many weights are averaged: post-processing
    prior_std      of each weight
    bound          where it is given, the records' mean is released once, as one more step, and taken off the inputs,
                   whose L2 norm is at most this
    """

    steps: int
    clip_norm: float
    learning_rate: float
    momentum: float = 0.0
    averaged: int = 1
    prior_std: float = 2.5
    bound: float | None = None

    @property
    def charged(self) -> int:
        """Gaussian mechanisms with one noise multiplier."""
        return self.steps + (self.bound is not None)


@dataclass(frozen=True)
class Posterior:
    """q(w) = N(mean, diag e^{2 log_std}) of inputs less `centre`; (d,) each."""

    mean: Floats
    log_std: Floats
    centre: Floats

    def scores(self, inputs: Floats) -> tuple[Floats, Floats]:
        """(n,) means and standard deviations of the records' scores."""
        centred = inputs - self.centre
        return centred @ self.mean, np.sqrt(np.square(centred) @ np.exp(2 * self.log_std))

    def accuracy(self, records: SurveyRecords) -> float:
        """Share of records whose likelier class, averaged over the posterior, is their own."""
        return float(((self.scores(records.inputs)[0] > 0) == records.labels).mean())


@lru_cache(maxsize=256)
def noise_for(epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    """(noise multiplier, its classical ε): the least within ε for so many unsampled steps."""
    noise = calibrate_noise(epsilon=epsilon, delta=delta, sampling_rate=1.0, steps=steps, method="pld")
    account = ClassicalAccountant(delta=delta)
    account.step(noise_multiplier=noise, sampling_rate=1.0, count=steps)
    return noise, account.epsilon()


def fitted(
    records: SurveyRecords,
    recipe: Recipe,
    noise_multiplier: float | None,
    seed: int,
    watched: list[Floats] | None = None,
) -> Posterior:
    """The posterior after the recipe's steps; noise_multiplier None: the same steps without noise.

    watched  takes, at every step, the clipped norms of the first SAMPLE records: (SAMPLE,)

    The mean gradient is over the number of records, which is public here (replacing it by a public guess changes a
    learning rate).
    """
    source = SeededSource(_SEED_OFFSET + seed, allow_insecure=True)
    prior, size = Prior(recipe.prior_std, float(len(records))), records.inputs.shape[1]
    centre = np.zeros(size) if recipe.bound is None else _mean(records, recipe.bound, noise_multiplier, source)
    now = np.concatenate([np.zeros(size), np.full(size, start_log_std(recipe.prior_std, len(records)))])
    step, iterates = np.zeros_like(now), list[Floats]()
    if watched is not None and recipe.bound is not None:
        # The mean's step: everybody counts with the whole of its sensitivity, the clip norm here.
        watched.append(np.full(SAMPLE, recipe.clip_norm))
    for _ in range(recipe.steps):
        at = Posterior(now[:size], now[size:], centre)
        if watched is not None:
            watched.append(np.minimum(norms(records[np.arange(SAMPLE)], at), recipe.clip_norm))
        total = clipped_sum(records, at, recipe.clip_norm)
        if noise_multiplier is not None:
            total = noised(total, recipe.clip_norm, noise_multiplier, source)
        pull = np.concatenate([prior.gradient("mean.weight", at.mean), prior.gradient("spread.weight", at.log_std)])
        step = recipe.momentum * step - recipe.learning_rate * (total / len(records) + pull)
        now = now + step
        iterates = [*iterates, now][-recipe.averaged :]
    last = np.mean(iterates, axis=0)
    return Posterior(last[:size], last[size:], centre)


def _mean(records: SurveyRecords, bound: float, noise_multiplier: float | None, source: RandomSource) -> Floats:
    """The inputs' mean, released; 0 for the last one, the constant."""
    lengths = np.linalg.norm(records.inputs, axis=1, keepdims=True)
    total = (records.inputs * np.minimum(1.0, bound * (1 - 2.0**-40) / lengths)).sum(0)
    noised_total = total if noise_multiplier is None else noised(total, bound, noise_multiplier, source)
    return np.append(noised_total[:-1], 0.0) / len(records)


def noised(total: Floats, clip_norm: float, noise_multiplier: float, source: RandomSource) -> Floats:
    """The sum with exact discrete Gaussian noise."""
    sum_of = ClippedSum({"sum": torch.from_numpy(total.copy())}, torch.zeros(0), clip_norm)
    return add_noise(sum_of, noise_multiplier=noise_multiplier, source=source).gradients["sum"].double().numpy()


def clipped_sum(records: SurveyRecords, at: Posterior, clip_norm: float) -> Floats:
    """(2d,) Σ of the records' gradients by (mean, log_std), each clipped to L2 norm clip_norm.

    ∂E ℓ/∂μ = x E(σ − y); ∂E ℓ/∂ρ_j = x_j² e^{2ρ_j} E σ(1 − σ) (Bonnet and Price).
    """
    total = np.zeros(2 * records.inputs.shape[1])
    for start in range(0, len(records), _ROWS):
        each = gradients(records[np.arange(start, min(start + _ROWS, len(records)))], at)
        factors = np.minimum(1.0, clip_norm / np.maximum(np.linalg.norm(each, axis=1), 1e-300)) * (1 - 2.0**-40)
        total += factors @ each
    return total


def norms(records: SurveyRecords, at: Posterior) -> Floats:
    """(n,) L2 norms of the records' gradients by (mean, log_std)."""
    return np.linalg.norm(gradients(records, at), axis=1)


def gradients(records: SurveyRecords, at: Posterior) -> Floats:
    """(n, 2d)."""
    slope, curvature = derivatives(records, at)
    centred = records.inputs - at.centre
    spread = np.square(centred) * np.exp(2 * at.log_std)
    return np.concatenate([slope[:, None] * centred, curvature[:, None] * spread], axis=1)


def derivatives(records: SurveyRecords, at: Posterior) -> tuple[Floats, Floats]:
    """(n,) E(σ − y) and E σ(1 − σ) over the posterior of each score."""
    means, stds = at.scores(records.inputs)
    likely = 1 / (1 + np.exp(-(means[:, None] + stds[:, None] * _NODES)))
    return likely @ _WEIGHTS - records.labels, (likely * (1 - likely)) @ _WEIGHTS
