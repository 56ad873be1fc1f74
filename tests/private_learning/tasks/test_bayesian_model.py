"""The model of Bayesian logistic regression: scores by hand, means by another rule, gradients of single records."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from private_learning.tasks.bayesian_model import ExpectedLoss, NormalScore, quadrature
from tests.private_learning.gradients.references import assert_exact


def model_of(features: int, seed: int = 1) -> NormalScore:
    torch.manual_seed(seed)
    model = NormalScore(features, -1.0).double()
    torch.nn.init.normal_(model.mean.weight)
    torch.nn.init.normal_(model.spread.weight, -1.0, 0.3)
    return model


def test_mean_and_variance_of_a_score_are_those_of_independent_normal_weights() -> None:
    model = model_of(3)
    inputs = np.random.default_rng(2).normal(size=(5, 3))
    outputs = model(torch.tensor(inputs)).detach().numpy()
    means, log_stds = model.mean.weight.detach().numpy()[0], model.spread.weight.detach().numpy()[0]
    extended = np.column_stack([inputs, np.ones(5)])
    np.testing.assert_allclose(outputs[:, 0], extended @ means, rtol=1e-12)
    np.testing.assert_allclose(outputs[:, 1], extended**2 @ np.exp(log_stds) ** 2, rtol=1e-12)


def test_the_first_model_has_means_of_zero_and_the_prior_s_deviation() -> None:
    outputs = NormalScore(2, math.log(0.5))(torch.tensor([[1.0, 2.0]]))
    assert outputs[0].tolist() == pytest.approx([0.0, 0.25 * (1 + 4 + 1)])


def test_the_rule_is_exact_for_moments_of_a_normal_number() -> None:
    outputs = torch.tensor([[0.7, 4.0]], dtype=torch.float64)
    scores, weights = quadrature(outputs)
    moments = [float((scores[0] ** k) @ weights) for k in range(5)]
    m, v = 0.7, 4.0
    assert moments == pytest.approx([1.0, m, m**2 + v, m**3 + 3 * m * v, m**4 + 6 * m**2 * v + 3 * v**2], rel=1e-12)


@pytest.mark.parametrize(("mean", "variance", "within"), [(0.3, 1e-4, 1e-9), (-2.0, 0.5, 1e-9), (1.0, 4.0, 1e-5)])
def test_the_loss_is_the_mean_over_the_posterior(mean: float, variance: float, within: float) -> None:
    std = math.sqrt(variance)

    def weighted(x: float, label: int) -> float:
        loss = max(x, 0.0) + math.log1p(math.exp(-abs(x))) - label * x
        return loss * math.exp(-((x - mean) ** 2) / (2 * variance)) / (std * math.sqrt(2 * math.pi))

    outputs = torch.tensor([[mean, variance]] * 2, dtype=torch.float64)
    losses = ExpectedLoss()(outputs, torch.tensor([0, 1]))
    for label in (0, 1):
        expected: Any = quad(weighted, mean - 12 * std, mean + 12 * std, (label,), epsabs=1e-12, limit=400)
        assert float(losses[label]) == pytest.approx(expected[0], abs=within)


def test_gradients_of_single_records_are_autograd_s() -> None:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(6, 3, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 2, (6,), generator=draw)
    assert_exact(model_of(3), x, y, ExpectedLoss())
