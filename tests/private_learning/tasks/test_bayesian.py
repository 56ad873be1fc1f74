"""Bayesian logistic regression: the means over the posterior, each record's gradient, and what a prediction says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from private_learning.gradients import PerRecordGradients
from private_learning.records import DataError, Table
from private_learning.tasks import TaskError, load

PARAMETERS: dict[str, Any] = {
    "label": "sick",
    "column.age": "18..90",
    "column.chol": "100..400; missing=240",
    "prior-std": 2.0,
    "patients": 800,
}
NAME = "bayesian-logistic-regression"


def over_normal(function: Any, mean: float, std: float) -> float:
    """E f(N(mean, std²)), by adaptive quadrature."""
    density = lambda x: math.exp(-((x - mean) ** 2) / (2 * std**2)) / (std * math.sqrt(2 * math.pi))  # noqa: E731
    return quad(lambda x: function(x) * density(x), mean - 12 * std, mean + 12 * std, epsabs=1e-12, limit=400)[0]


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


@pytest.mark.parametrize(("mean", "std", "within"), [(0.3, 0.01, 1e-9), (-2, 0.7, 1e-9), (4, 2, 1e-5), (-1, 5, 1e-3)])
def test_losses_and_probabilities_are_means_over_the_posterior(mean: float, std: float, within: float) -> None:
    task = load(NAME, PARAMETERS)
    outputs = torch.tensor([[mean, std**2]] * 2, dtype=torch.float64)
    found = task.loss(outputs, torch.tensor([0, 1]))
    for label in (0, 1):
        expected = over_normal(lambda x, y=label: softplus(x) - y * x, mean, std)
        assert float(found[label]) == pytest.approx(expected, abs=within)
    likely = over_normal(sigmoid, mean, std)
    np.testing.assert_allclose(task.predictions(outputs)[0].numpy(), [1 - likely, likely], atol=within)


def drawn(seed: int = 4, records: int = 9) -> tuple[Any, Tensor, Tensor]:
    torch.manual_seed(seed)
    task = load(NAME, PARAMETERS)
    model = task.model()
    torch.nn.init.normal_(model.mean.weight)  # type: ignore[union-attr]
    torch.nn.init.normal_(model.spread.weight, -1.0, 0.5)  # type: ignore[union-attr]
    inputs = torch.randn(records, task.features)  # type: ignore[attr-defined]
    return model, inputs, (torch.rand(records) < 0.5).long()


def test_each_record_s_gradient_is_its_own_backward() -> None:
    model, inputs, targets = drawn()
    # In float64: a sum of float32 gradients, some of which cancel, shows their rounding.
    model, inputs = model.double(), inputs.double()
    task, clip = load(NAME, PARAMETERS), 0.4
    ours = PerRecordGradients(model, task.loss)
    norms = ours.norms(inputs, targets)
    assert ours.method == "layerwise"
    total = {name: torch.zeros_like(weights) for name, weights in model.named_parameters()}
    for i in range(len(inputs)):
        model.zero_grad()
        task.loss(model(inputs[i : i + 1]), targets[i : i + 1]).sum().backward()
        own = math.sqrt(sum(float(weights.grad.double().square().sum()) for weights in model.parameters()))
        assert float(norms[i]) == pytest.approx(own, rel=1e-10)
        for name, weights in model.named_parameters():
            total[name] += weights.grad * min(1.0, clip / own)
    found = ours.clipped_sum(inputs, targets, clip_norm=clip).gradients
    for name, expected in total.items():
        torch.testing.assert_close(found[name], expected, rtol=1e-10, atol=1e-12)


def test_the_spread_s_gradient_is_that_of_the_expected_loss() -> None:
    """∂/∂ρ E ℓ = E ℓ″ x² e^{2ρ} (Bonnet and Price), with the integral of another rule."""
    model, inputs, targets = drawn(records=1)
    task = load(NAME, PARAMETERS)
    task.loss(model(inputs), targets).sum().backward()
    seen = np.append(inputs[0].double().numpy(), 1.0)
    stds = np.exp(model.spread.weight.detach().double().numpy()[0])
    std = math.sqrt(float(np.sum((seen * stds) ** 2)))
    mean = float(seen @ model.mean.weight.detach().double().numpy()[0])
    curvature = over_normal(lambda x: sigmoid(x) * sigmoid(-x), mean, std)
    np.testing.assert_allclose(model.spread.weight.grad[0].numpy(), curvature * (seen * stds) ** 2, rtol=1e-3)


@pytest.mark.slow
def test_training_with_the_prior_finds_the_posterior_of_a_conjugate_like_problem() -> None:
    """Many records at one input: μ and ρ go where Newton's method on the same objective says, by another code."""
    from study_protocol.study.prior import prior_of

    patients, prior = 200, prior_of({"prior-std": 1.5, "patients": 200})
    assert prior is not None
    task = load(NAME, PARAMETERS | {"patients": patients, "prior-std": 1.5})
    model = task.model().double()
    torch.manual_seed(0)
    inputs = torch.rand(patients, 3, dtype=torch.float64) * 2 - 1
    truth = torch.tensor([1.0, -1.5, 0.5], dtype=torch.float64)
    targets = (torch.rand(patients) < torch.sigmoid(inputs @ truth)).long()
    for _ in range(4000):
        model.zero_grad()
        task.loss(model(inputs), targets).mean().backward()
        with torch.no_grad():
            for name, weights in model.named_parameters():
                assert weights.grad is not None
                weights -= 2.0 * (weights.grad + torch.from_numpy(prior.gradient(name, weights.numpy())))
    mean, spread = (weights.detach().numpy()[0] for weights in (model.mean.weight, model.spread.weight))  # type: ignore[union-attr]
    seen = np.column_stack([inputs.numpy(), np.ones(patients)])
    # At the optimum: e^{-2ρ_j} = 1/s² + Σ_i x_ij² E σ′ and μ_j/s² = Σ_i x_ij (y_i − E σ).
    scores, stds = seen @ mean, np.sqrt((seen**2) @ np.exp(2 * spread))
    nodes, weights_ = np.polynomial.hermite.hermgauss(60)
    at = scores[:, None] + math.sqrt(2) * stds[:, None] * nodes
    likely = (1 / (1 + np.exp(-at))) @ weights_ / math.sqrt(math.pi)
    slope = (1 / (1 + np.exp(-at)) / (1 + np.exp(at))) @ weights_ / math.sqrt(math.pi)
    np.testing.assert_allclose(mean / 1.5**2, seen.T @ (targets.numpy() - likely), atol=1e-4)
    np.testing.assert_allclose(np.exp(-2 * spread), 1.5**-2 + (seen**2).T @ slope, rtol=1e-5)


def test_intervals_hold_the_probability_as_often_as_they_say() -> None:
    model, inputs, _ = drawn()
    task = load(NAME, PARAMETERS)
    with torch.no_grad():
        outputs = model(inputs).double()
    intervals = task.intervals(outputs, 0.8)
    assert intervals is not None
    rng = np.random.default_rng(5)
    seen = np.column_stack([inputs.double().numpy(), np.ones(len(inputs))])
    means, stds = (weights.detach().double().numpy()[0] for weights in (model.mean.weight, model.spread.weight.exp()))
    weights = means + stds * rng.normal(size=(20_000, len(means)))
    inside = 1 / (1 + np.exp(-weights @ seen.T))
    share = ((inside >= intervals[:, 0].numpy()) & (inside <= intervals[:, 1].numpy())).mean(axis=0)
    # Of 20,000 draws the share is within 0.014 but with chance 1e-6 (5 standard deviations of 0.0028).
    np.testing.assert_allclose(share, 0.8, atol=0.014)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"classes": 3}, "classes"), ({"label-values": "a|b|c"}, "two"), ({"prior-std": 0.0}, "prior-std")],
)
def test_what_it_does_not_take_is_named(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(TaskError, match=word):
        load(NAME, PARAMETERS | wrong)


def test_metrics_are_of_the_averaged_probabilities() -> None:
    task = load(NAME, PARAMETERS)
    outputs = torch.tensor([[1.0, 4.0], [-2.0, 0.25]])
    found = task.metrics(outputs, torch.tensor([1, 1]))
    likely = [over_normal(sigmoid, 1.0, 2.0), over_normal(sigmoid, -2.0, 0.5)]
    assert found["accuracy"] == 0.5
    assert found["log_loss"] == pytest.approx(-np.log(likely).mean(), abs=1e-4)
    with pytest.raises(DataError, match="at least one"):
        task.metrics(outputs[:0], torch.tensor([], dtype=torch.long))
    assert task.dataset(Table.of({"age": [40], "chol": [None], "sick": [1]})).inputs.shape == (1, 3)
