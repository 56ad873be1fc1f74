"""The closed forms of the central experiments are the SDK's own clipped sums."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.layers import cross_entropy
from private_learning.tasks import load
from research.bayesian import central_softmax
from research.bayesian.central_inference import Posterior, Recipe, clipped_sum, fitted, norms
from research.bayesian.survey_data import SurveyRecords


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def records(count: int = 60) -> SurveyRecords:
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.uniform(-1, 1, size=(count, 3)), np.ones(count)])
    return SurveyRecords(inputs, (rng.random(count) < 1 / (1 + np.exp(-inputs @ (2, -1, 0.5, 0.1)))).astype(np.int64))


def test_variational_gradients_are_those_of_the_task() -> None:
    parameters = {f"column.{name}": "-1..1" for name in "abc"} | {"label": "y", "prior-std": 2.5, "patients": 60}
    task, rng, given = load("bayesian-logistic-regression", parameters), np.random.default_rng(1), records()
    at = Posterior(rng.normal(size=4), rng.normal(-1, 0.5, 4), np.array([0.1, -0.2, 0.3, 0.0]))
    model = task.model().double()
    for parameter, values in zip(model.parameters(), (at.mean, at.log_std), strict=True):
        parameter.data = torch.from_numpy(values[None])
    gradients = PerRecordGradients(model, task.loss)
    inputs, labels = torch.from_numpy((given.inputs - at.centre)[:, :3].copy()), torch.from_numpy(given.labels)
    np.testing.assert_allclose(norms(given, at), gradients.norms(inputs, labels).numpy(), rtol=1e-9)
    total = gradients.clipped_sum(inputs, labels, clip_norm=0.3).gradients
    expected = np.concatenate([total["mean.weight"][0].numpy(), total["spread.weight"][0].numpy()])
    np.testing.assert_allclose(clipped_sum(given, at, 0.3), expected, rtol=1e-9, atol=1e-12)


def test_softmax_gradients_are_those_of_a_linear_layer() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 10, bias=False)
    inputs, labels = nn.functional.normalize(torch.randn(50, 6), dim=1), torch.randint(10, (50,))
    gradients = PerRecordGradients(layer, cross_entropy)
    expected = gradients.clipped_sum(inputs, labels, clip_norm=0.5).gradients["weight"]
    targets = nn.functional.one_hot(labels, 10).float()
    found = central_softmax.clipped_sum(inputs, targets, layer.weight.detach(), 0.5)
    # A record's gradient is held 2⁻¹⁴ below the clip norm here.
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        central_softmax.record_norms(inputs, targets, layer.weight.detach()).double(),
        gradients.norms(inputs, labels),
        rtol=1e-5,
        atol=1e-6,
    )


def test_without_noise_enough_steps_find_the_posterior_and_with_it_runs_repeat() -> None:
    given = records(400)
    found = fitted(given, Recipe(3000, 10.0, 3.0), None, 0)
    likely = 1 / (1 + np.exp(-given.inputs @ found.mean))
    precision = 2.5**-2 + np.square(given.inputs).T @ (likely * (1 - likely))
    # The curvature at the mean instead of its mean over the posterior: a few per cent apart.
    np.testing.assert_allclose(np.exp(-2 * found.log_std), precision, rtol=0.05)
    # A mean that is taken off is one more release, and moves the constant alone.
    apart = fitted(given, Recipe(3000, 10.0, 3.0, bound=2.0), None, 0)
    np.testing.assert_allclose(apart.centre[:3], given.inputs[:, :3].mean(0), rtol=1e-9)
    np.testing.assert_allclose(apart.scores(given.inputs)[0], found.scores(given.inputs)[0], atol=0.05)
    assert (Recipe(3, 1.0, 1.0).charged, Recipe(3, 1.0, 1.0, bound=2.0).charged) == (3, 4)
    one, same, other = (fitted(given, Recipe(3, 0.5, 1.0, 0.5, 2), 2.0, seed).mean for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_linear_classifier_learns_under_noise_and_says_what_records_cost() -> None:
    torch.manual_seed(1)
    centres = nn.functional.normalize(torch.randn(10, 30), dim=1)
    labels = torch.randint(10, (3000,))
    inputs = nn.functional.normalize(centres[labels] + 0.05 * torch.randn(3000, 30), dim=1)
    recipe, watched = central_softmax.SoftmaxRecipe(10, 0.5, 40.0, 0.5), list[np.ndarray]()
    model = central_softmax.fitted(inputs, labels, recipe, 2.0, [0, 1], watched)
    assert min(model.accuracies(inputs, labels)) > 0.9
    assert [each.shape for each in watched] == [(11, central_softmax.SAMPLE)] * 2
    assert max(each.max() for each in watched) <= 0.5
