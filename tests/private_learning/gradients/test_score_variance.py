"""The variance of a score: its closed form, and gradients of single records against autograd."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from private_learning.gradients.score_variance import ScoreVariance, ScoreVarianceLayer
from tests.private_learning.gradients.references import assert_exact


def test_it_is_the_variance_of_a_sum_of_independent_normal_weights() -> None:
    module = ScoreVariance(3, -0.7).double()
    draw = np.random.default_rng(1)
    x, log_stds = draw.normal(size=(5, 3)), draw.normal(size=3)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(log_stds))
    expected = [sum((x[i, j] * np.exp(log_stds[j])) ** 2 for j in range(3)) for i in range(5)]
    np.testing.assert_allclose(module(torch.tensor(x)).detach().numpy()[:, 0], expected, rtol=1e-12)


def test_every_closed_form_is_autograd_s_for_single_records() -> None:
    torch.manual_seed(4)
    module = ScoreVariance(3, -0.7).double()
    layer = ScoreVarianceLayer("spread", module, {"weight": "model.weight"})
    x, g = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    rows = [torch.autograd.grad((module(x[i : i + 1]) * g[i]).sum(), module.weight)[0] for i in range(6)]
    true, factors = torch.stack(rows), torch.linspace(-1, 2, 6, dtype=torch.float64)
    squares, cache = layer.squares(x, g)
    torch.testing.assert_close(layer.per_record(x, g)["weight"], true)
    torch.testing.assert_close(squares["weight"], true.flatten(1).square().sum(1))
    torch.testing.assert_close(
        layer.weighted_sum(x, g, {"weight": factors}, cache)["weight"], torch.einsum("i,ijk->jk", factors, true)
    )
    centre = torch.randn(1, 3, dtype=torch.float64)
    torch.testing.assert_close(layer.inner(x, g, {"weight": centre}, cache)["weight"], true.flatten(1) @ centre[0])


def test_layers_below_get_the_gradient_of_the_square() -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 3), ScoreVariance(3, -0.7)).double()
    assert_exact(model, torch.randn(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64))
