"""Draws of weights around a logistic regression that was fitted without noise: N(w*, s²I), a few times.

The fit is hidden. Draws are released, each a Gaussian mechanism whose sensitivity is how far one record can
move w* (`accounting.mechanisms.inference.fit_distance` has the theorem). For a single holder of records, or a person
who may see all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from accounting import ClassicalAccountant, Guarantee
from accounting.mechanisms.inference import fit_distance
from private_learning.errors import ConfigurationError, TrainingStopped
from private_learning.gradients import ClippedSum
from private_learning.training.noise import GridNoise, positive
from study_protocol.randomness.source import RandomSource

Floats = NDArray[np.float64]
_UNIT = 2.0**-53
# Rounding up and down by a few float64 operations.
_ROUNDINGS = 2.0**-40
_NEWTON_STEPS = 200


@dataclass(frozen=True)
class PosteriorPlan:
    """Public settings of a fit, fixed before the records are seen.

    records    the public denominator n: about as many as there are
    curvature  Λ of the prior's part (Λ/2)‖w‖². A normal prior of standard deviation σ has Λ = 1/(σ²n).
    bound      L2 norm that a record's inputs are cut to: no gradient of the logistic loss is longer
    std        s of each draw
    draws      how many are released
    residual   ‖∇F‖ that the solver must certify. The default adds hardly any distance.
    """

    records: float
    curvature: float
    bound: float
    std: float
    draws: int = 1
    residual: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("records", "curvature", "bound", "std", "residual"):
            positive(name, cast(float, getattr(self, name)))
        if self.draws < 1:
            raise ValueError(f"draws must be at least 1, got {self.draws!r}")

    @property
    def distance(self) -> float:
        """The farthest that any record moves the fit, rounded up."""
        return float(self._moved(np.array([self.bound * (1 + _ROUNDINGS)]))[0])

    def distances(self, gradient_norms: Floats, coordinates: int) -> Floats:
        """Return (n,) how far records with these gradients at the fit move it, rounded up, for a Bayesian account.

        The distances lie beside noise of standard deviation `std`, and include the rounding to its grid. They are at
        most `distance`.

        coordinates  d of the weights
        """
        rounding = self.noise(coordinates).sensitivity - self.distance
        # The noise covers distance + rounding. Both are scaled back, as everywhere with a grid.
        scaled = (self._moved(gradient_norms) + rounding) * (self.distance / (self.distance + rounding))
        return np.minimum(scaled * (1 + _ROUNDINGS), self.distance)

    @property
    def noise_multiplier(self) -> float:
        """Return s over the distance, of one draw. All `draws` of them are charged."""
        return self.std / self.distance * (1 - _ROUNDINGS)

    def noise(self, coordinates: int) -> GridNoise:
        """Of a draw of so many weights: at least `std`, by as much more as the grid needs."""
        multiplier = self.std / self.distance * (1 + _ROUNDINGS)
        return GridNoise.calibrated(self.distance, coordinates, noise_multiplier=multiplier)

    def guarantee(self, delta: float) -> Guarantee:
        """The classical (ε, δ) of all draws together, for any record."""
        account = ClassicalAccountant(delta=delta)
        account.step(noise_multiplier=self.noise_multiplier, sampling_rate=1.0, count=self.draws)
        return account.certificate()

    def _moved(self, gradient_norms: Floats) -> Floats:
        return fit_distance(gradient_norms, records=self.records, curvature=self.curvature, residual=self.residual)


@dataclass(frozen=True)
class PosteriorFit:
    """A hidden fit: it is as exact about the records as no draw is.

    weights         (d,) w*
    residual        ‖∇F(w*)‖, rounded up by the possible error of float64
    gradient_norms  (n,) ‖∇ℓ_i(w*)‖ of the records that it was fitted to
    plan            the plan of the fit: how far a record moves it is known for this alone
    """

    weights: Floats
    residual: float
    gradient_norms: Floats
    plan: PosteriorPlan


def fit_posterior(inputs: Floats, labels: NDArray[np.int64], plan: PosteriorPlan) -> PosteriorFit:
    """Return the minimum of (1/n) Σ log-loss + (Λ/2)‖w‖² by Newton's method with halved steps.

    inputs  (m, d), a column of ones where there is to be a constant. Longer rows are cut to `bound`.
    labels  (m,) 0 or 1

    Raises:
        TrainingStopped: NaN or an infinity.
        ConfigurationError: the gradient cannot be certified to be below `residual`.
        ValueError: labels that are not 0 or 1.
    """
    rows, signs = cut(inputs, plan.bound), np.asarray(labels, dtype=np.float64)
    if rows.shape[0] != signs.shape[0] or not np.isin(signs, (0.0, 1.0)).all():
        raise ValueError("labels must be 0 or 1, one for each row of inputs")
    weights, residual = np.zeros(rows.shape[1]), 0.0
    for _ in range(_NEWTON_STEPS):
        slope, residual = _gradient(weights, rows, signs, plan)
        if residual <= plan.residual:
            return PosteriorFit(weights, residual, record_gradients(weights, rows, signs), plan)
        weights = weights - _step(weights, slope, rows, signs, plan)
    raise ConfigurationError(
        f"the fit's gradient is not certified to be below {plan.residual:.1g}, only below {residual:.1g}: choose a "
        "larger residual or curvature"
    )


def draw_posterior(fit: PosteriorFit, plan: PosteriorPlan, source: RandomSource) -> Floats:
    """Return (draws, d) weights, which may leave the hospital. The noise is exact discrete Gaussian on a grid.

    plan    that of the fit. `std` and `draws` may be others, if no record had a say in them.
    source  cryptographic outside experiments: knowledge of it reveals the fit

    Raises:
        ConfigurationError: the fit was made by a plan of another distance.
    """
    if replace(plan, std=fit.plan.std, draws=fit.plan.draws) != fit.plan:
        raise ConfigurationError("the fit was made by another plan: only by that is it known how far a record moves it")
    noise, samples = plan.noise(fit.weights.size), list[Floats]()
    for _ in range(plan.draws):
        hidden = ClippedSum({"weights": torch.tensor(fit.weights)}, torch.zeros(0), plan.distance)
        samples.append(noise.added_to(hidden, source).gradients["weights"].numpy())
    return np.stack(samples)


def posterior_probabilities(weights: Floats, inputs: Floats, bound: float) -> Floats:
    """Return (n,) probabilities of class 1, averaged over (draws, d) weights.

    Rows longer than `bound` are cut as in the fit.
    """
    return _sigmoid(cut(inputs, bound) @ weights.T).mean(axis=1)


def gradient_norms(fit: PosteriorFit, inputs: Floats, labels: NDArray[np.int64], plan: PosteriorPlan) -> Floats:
    """Return (n,) ‖∇ℓ_i(w*)‖, rounded up, of records that took no part.

    `plan.distances` says how far each would move w*.
    """
    return record_gradients(fit.weights, cut(inputs, plan.bound), np.asarray(labels, dtype=np.float64))


def cut(inputs: Floats, bound: float) -> Floats:
    """Return (n, d) rows of L2 norm at most `bound`. Raises TrainingStopped for NaN or an infinity."""
    rows = np.asarray(inputs, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise TrainingStopped("the inputs")
    return rows * np.minimum(1.0, bound / np.maximum(norms, np.finfo(np.float64).tiny))


def record_gradients(weights: Floats, rows: Floats, labels: Floats) -> Floats:
    """Return (n,) ‖∇ℓ_i(w)‖ = |σ(x·w) − y| ‖x‖, rounded up, of records that took part or not."""
    residuals = np.abs(_sigmoid(rows @ weights) - labels)
    # σ is off by at most a quarter of what its argument is, and by a few units of its own.
    hidden = 0.25 * (rows.shape[1] + 2) * _UNIT * np.linalg.norm(rows, axis=1) * np.linalg.norm(weights) + 16 * _UNIT
    norms: Floats = np.asarray((residuals + hidden) * np.linalg.norm(rows, axis=1) * (1 + _ROUNDINGS), dtype=np.float64)
    return norms


def _gradient(weights: Floats, rows: Floats, labels: Floats, plan: PosteriorPlan) -> tuple[Floats, float]:
    """Return ∇F(w) and a bound on its true norm.

    Sums of m products in any order are off by at most (m + 2)u of the sum of their sizes (Higham 2002, section 3.1).
    The bound takes twice that, so that it covers its own rounding.
    """
    errors = _sigmoid(rows @ weights) - labels
    slope = rows.T @ errors / plan.records + plan.curvature * weights
    lengths, size = np.linalg.norm(rows, axis=1), float(np.linalg.norm(weights))
    scores = 0.25 * (rows.shape[1] + 2) * _UNIT * lengths * size + 16 * _UNIT
    hidden = float(np.sum(lengths * (scores + (len(rows) + 4) * _UNIT))) / plan.records
    hidden += 8 * _UNIT * (plan.curvature * size + float(np.linalg.norm(slope)))
    return slope, float(np.linalg.norm(slope)) * (1 + _ROUNDINGS) + 2 * hidden


def _step(weights: Floats, slope: Floats, rows: Floats, labels: Floats, plan: PosteriorPlan) -> Floats:
    """Return Newton's step, halved until the loss falls (Boyd & Vandenberghe 2004, section 9.5)."""
    likely = _sigmoid(rows @ weights)
    curved = (rows * (likely * (1 - likely))[:, None]).T @ rows / plan.records
    full = np.linalg.solve(curved + plan.curvature * np.eye(len(weights)), slope)
    now, share = _loss(weights, rows, labels, plan), 1.0
    # Near the minimum the loss cannot tell steps apart any more.
    while share > 1e-4 and _loss(weights - share * full, rows, labels, plan) > now + 1e-12 * abs(now):
        share /= 2
    step: Floats = np.asarray(share * full, dtype=np.float64)
    return step


def _loss(weights: Floats, rows: Floats, labels: Floats, plan: PosteriorPlan) -> float:
    scores = rows @ weights
    losses = np.logaddexp(0.0, scores) - labels * scores
    return float(losses.sum() / plan.records + plan.curvature / 2 * (weights @ weights))


def _sigmoid(scores: Floats) -> Floats:
    # Either side by its own exponential: no overflow, and 1 − σ keeps its digits.
    small = np.exp(-np.abs(scores))
    probabilities: Floats = np.where(scores >= 0, 1.0, small) / (1 + small)
    return probabilities
