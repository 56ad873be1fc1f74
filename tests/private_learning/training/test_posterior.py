"""Draws from around a hidden fit: the fit, its certificate, the distance of a record, the noise and its price."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from scipy.optimize import minimize

from accounting import AveragedAccountant, EstimateSpec
from client_sdk.errors import ConfigurationError, TrainingStopped
from private_learning.training.posterior import (
    PosteriorPlan,
    cut,
    draw_posterior,
    fit_posterior,
    gradient_norms,
    posterior_probabilities,
)
from study_protocol.randomness.source import SeededSource

PLAN = PosteriorPlan(records=200.0, curvature=0.05, bound=2.0, std=0.8, draws=3, residual=1e-10)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def records(seed: int = 0, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = np.column_stack([rng.normal(size=(count, 3)) * (1, 1, 3), np.ones(count)])
    return inputs, (rng.random(count) < 1 / (1 + np.exp(-inputs @ (1.5, -1, 0.3, 0.2)))).astype(np.int64)


def test_the_fit_is_another_solver_s_minimum_and_its_residual_holds_in_many_digits() -> None:
    inputs, labels = records()
    found, rows = fit_posterior(inputs, labels, PLAN), cut(inputs, 2.0)

    def loss(at: np.ndarray) -> float:
        scores = rows @ at
        return float((np.logaddexp(0, scores) - labels * scores).mean() + 0.025 * at @ at)

    np.testing.assert_allclose(found.weights, minimize(loss, np.zeros(4), tol=1e-12).x, atol=1e-5)
    with mp.workdps(40):
        exact = [mp.mpf(0.05) * mp.mpf(float(w)) for w in found.weights]
        for row, label in zip(rows, labels, strict=True):
            score = mp.fdot([mp.mpf(float(x)) for x in row], [mp.mpf(float(w)) for w in found.weights])
            away = 1 / (1 + mp.exp(-score)) - int(label)
            exact = [total + away * mp.mpf(float(x)) / 200 for total, x in zip(exact, row, strict=True)]
        true = float(mp.sqrt(mp.fsum(value**2 for value in exact)))
    assert true <= found.residual <= 1e-10


@pytest.mark.parametrize("seed", range(4))
def test_refitting_without_a_record_stays_within_its_distance(seed: int) -> None:
    inputs, labels = records(seed, 60)
    plan = PosteriorPlan(records=60.0, curvature=0.01, bound=2.0, std=1.0)
    whole = fit_posterior(inputs, labels, plan)
    distances = plan.distances(whole.gradient_norms, 4)
    for i in range(60):
        rest = np.arange(60) != i
        moved = float(np.linalg.norm(fit_posterior(inputs[rest], labels[rest], plan).weights - whole.weights))
        assert moved <= distances[i] <= plan.distance


def test_a_stranger_s_distance_bounds_what_adding_him_does() -> None:
    inputs, labels = records(5, 80)
    plan = PosteriorPlan(records=70.0, curvature=0.02, bound=2.0, std=1.0)
    before = fit_posterior(inputs[:70], labels[:70], plan)
    strange = gradient_norms(before, inputs[70:], labels[70:], plan)
    for i, distance in enumerate(plan.distances(strange, 4), start=70):
        after = fit_posterior(np.vstack([inputs[:70], inputs[i]]), np.append(labels[:70], labels[i]), plan)
        assert float(np.linalg.norm(after.weights - before.weights)) <= distance


def test_what_the_grid_adds_to_a_record_that_hardly_counts_is_charged() -> None:
    inputs, labels = records(3, 60)
    # Gradients of 1e-6 move the fit by less than a grid step of noise so large.
    plan = PosteriorPlan(records=60.0, curvature=0.01, bound=2.0, std=20.0, residual=1e-12)
    inputs *= 1e-6 / np.linalg.norm(inputs, axis=1, keepdims=True)
    whole, noise = fit_posterior(inputs, labels, plan), plan.noise(4)
    charged, law = plan.distances(whole.gradient_norms, 4), noise.law.std * noise.spacing
    steps = 0
    for i in range(60):
        rest = np.arange(60) != i
        other = fit_posterior(inputs[rest], labels[rest], plan).weights
        apart = np.rint(other / noise.spacing) - np.rint(whole.weights / noise.spacing)
        steps += int(np.abs(apart).sum())
        assert np.linalg.norm(apart * noise.spacing) / law <= charged[i] / plan.std
    # Some lie a whole step apart.
    assert steps > 0
    assert charged.max() < plan.distance


def test_no_draw_costs_more_than_its_multiplier_says() -> None:
    for std, coordinates in ((1e-3, 1), (0.8, 4), (1e6, 5000)):
        plan = PosteriorPlan(records=200.0, curvature=0.05, bound=2.0, std=std)
        noise = plan.noise(coordinates)
        with mp.workdps(40):
            law = mp.mpf(noise.law.std) * noise.spacing
            moved = mp.mpf(plan.distance) + mp.mpf(noise.spacing) * mp.sqrt(coordinates)
            assert law / moved >= plan.noise_multiplier
            # What Bayesian accounts are told: std, and no distance above the largest.
            assert law / moved >= mp.mpf(std) / mp.mpf(plan.distance)


def test_a_fit_is_drawn_from_by_its_own_plan() -> None:
    fit, source = fit_posterior(*records(), PLAN), SeededSource(0, allow_insecure=True)
    assert draw_posterior(fit, replace(PLAN, std=2.0, draws=1), source).shape == (1, 4)
    for other in ({"curvature": 0.5}, {"bound": 1.0}, {"records": 2000.0}, {"residual": 1e-12}):
        with pytest.raises(ConfigurationError, match="another plan"):
            draw_posterior(fit, replace(PLAN, **other), source)


def test_draws_lie_around_the_fit_with_the_noise_that_is_charged() -> None:
    inputs, labels = records()
    plan = PosteriorPlan(records=200.0, curvature=0.05, bound=2.0, std=0.8, draws=4000)
    found = fit_posterior(inputs, labels, plan)
    away = draw_posterior(found, plan, SeededSource(3, allow_insecure=True)) - found.weights
    # 16,000 numbers: mean within 5 σ/√n = .032, deviation within 5 σ/√(2n) = .023, but with chance 1e-6.
    assert abs(float(away.mean())) < 0.032
    assert float(away.std()) == pytest.approx(0.8, abs=0.023)
    assert plan.noise_multiplier * plan.distance <= 0.8


def test_the_price_is_that_of_so_many_gaussian_mechanisms() -> None:
    epsilon = PLAN.guarantee(1e-5).epsilon
    ratio = math.sqrt(3) * (2.0 / (200 * 0.05) + 2e-10 / 0.05) / 0.8
    with mp.workdps(40):
        mu, eps = mp.mpf(ratio), mp.mpf(epsilon)
        delta = float(mp.ncdf(mu / 2 - eps / mu) - mp.e**eps * mp.ncdf(-mu / 2 - eps / mu))
    # ε holds: δ at it is at most 1e-5, and nearly so.
    assert 0.999e-5 < delta <= 1e-5


@pytest.mark.slow
def test_the_averaged_cost_of_the_records_is_below_the_worst_case() -> None:
    inputs, labels = records(2, 2000)
    plan = PosteriorPlan(records=2000.0, curvature=0.02, bound=2.0, std=0.2, draws=2)
    found = fit_posterior(inputs, labels, plan)
    spec = EstimateSpec(delta=1e-3, estimator_failure_probability=1e-4)
    account = AveragedAccountant(spec, members=2000, max_ratio=plan.distance / plan.std)
    for _ in range(plan.draws):
        distances = plan.distances(found.gradient_norms, 4)
        account.step(distances, noise_std=plan.std, sampling_rate=1.0, max_distance=plan.distance)
    assert 0 < account.epsilon() < plan.guarantee(1e-3).epsilon


def test_probabilities_are_averaged_over_the_draws() -> None:
    weights = np.array([[1.0, 0.0], [-2.0, 0.5]])
    inputs = np.array([[0.5, 1.0], [30.0, 40.0]])
    rows = np.array([[0.5, 1.0], [3.0, 4.0]])
    expected = (1 / (1 + np.exp(-rows @ weights.T))).mean(axis=1)
    np.testing.assert_allclose(posterior_probabilities(weights, inputs, 5.0), expected)


def test_what_cannot_be_fitted_is_refused() -> None:
    inputs, labels = records()
    with pytest.raises(TrainingStopped, match="the inputs"):
        fit_posterior(np.where(inputs > 2, np.nan, inputs), labels, PLAN)
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        fit_posterior(inputs, labels * 2, PLAN)
    with pytest.raises(ConfigurationError, match="not certified"):
        fit_posterior(inputs, labels, PosteriorPlan(records=200.0, curvature=0.05, bound=2.0, std=1.0, residual=1e-19))
    plain: dict[str, Any] = {"records": 9.0, "curvature": 1.0, "bound": 1.0, "std": 1.0}
    for name, value in (("std", 0.0), ("curvature", math.nan), ("draws", 0)):
        with pytest.raises(ValueError, match=name):
            PosteriorPlan(**{**plain, name: value})
