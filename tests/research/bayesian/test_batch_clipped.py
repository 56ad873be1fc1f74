"""A batch's clipped gradient: what one record moves, by clipping twice, and that it may be nearly 2C."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from research.bayesian.batch_clipped import BatchClippedRecipe, clipped, moved
from research.bayesian.readings import NoisedSteps


def test_what_a_record_moves_is_the_difference_of_two_clipped_gradients() -> None:
    torch.manual_seed(0)
    recipe = BatchClippedRecipe(batch=8, clip_norm=0.3)
    weights, slope = torch.randn(10, 5), torch.randn(10, 5) * 0.1
    inputs, targets = torch.randn(40, 5) * 3, nn.functional.one_hot(torch.randint(10, (40,)), 10).float()
    found = moved(slope, weights, inputs, targets, recipe)
    for i in range(40):
        away = torch.softmax(weights @ inputs[i], dim=0) - targets[i]
        after = slope + torch.outer(away, inputs[i]) / 8
        true = float((clipped(after, 0.3) - clipped(slope, 0.3)).norm())
        assert true <= found[i] == pytest.approx(true, rel=1e-3, abs=1e-5)


def test_one_record_can_turn_the_batch_s_gradient_around() -> None:
    """So that 2C is its sensitivity, and not C: the others' gradient is one way, and the record's the other."""
    recipe = BatchClippedRecipe(batch=1, clip_norm=1.0)
    weights, inputs = torch.zeros(10, 1), torch.full((1, 1), 1e4)
    targets = nn.functional.one_hot(torch.tensor([3]), 10).float()
    slope = -5.0 * (torch.softmax(torch.zeros(10), dim=0) - targets[0])[:, None]
    (found,) = moved(slope, weights, inputs, targets, recipe)
    assert found == pytest.approx(2.0, abs=1e-5)


def test_the_two_prices_of_the_papers_settings() -> None:
    """372 and 2,088 at 20 epochs of batches of 1,024, δ = 1e-5, against another library's accountants.

    With noise 0.1 losses have no distribution here, and the Rényi reading stands.
    """
    from dp_accounting import dp_event
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.rdp import RdpAccountant

    loss = pld.from_gaussian_mechanism(0.2, sampling_prob=1024 / 60_000, value_discretization_interval=0.05)
    assert 371 < loss.self_compose(1172).get_epsilon_for_delta(1e-5) < 373
    for multiplier, shown in ((0.2, 372), (0.1, 2088)):
        mechanism = NoisedSteps(BatchClippedRecipe().steps(60_000), 1024 / 60_000, multiplier, 1.0, 1e-5)
        assert round(mechanism.epsilon) == shown
        if multiplier == 0.2:
            continue
        other = RdpAccountant([*(1 + np.arange(2, 100) / 100), *range(3, 40)])
        event = dp_event.PoissonSampledDpEvent(1024 / 60_000, dp_event.GaussianDpEvent(multiplier))
        other.compose(event, mechanism.steps)
        assert mechanism.epsilon == pytest.approx(other.get_epsilon(1e-5), rel=0.01)
