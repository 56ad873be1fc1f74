"""What composition asks of a step: the same of every kind of noise."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.mechanisms.finite_pairs import FiniteLosses, FinitePair
from accounting.mechanisms.gaussian_mixtures import GaussianMixtures
from accounting.mechanisms.step_laws import is_tractable, loss_span, loss_variance, losses_of
from accounting.mechanisms.unsampled import Steps

STEPS = {
    "gaussian": Steps(2.0, 0.2, 1),
    "laplace": Steps(2.0, 0.2, 1, law="laplace"),
    "finite": Steps(1.0, 0.2, 1, law=FiniteLosses(FinitePair([0.7, 0.3], [0.4, 0.6]), 0.2)),
    "mixture": Steps(1.0, 0.2, 1, law=GaussianMixtures(2.0, 0.2, 2)),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("removal", [True, False])
def test_the_losses_lie_within_the_span_and_vary_about_as_much_as_it_says(name: str, removal: bool) -> None:
    step = STEPS[name]
    span = loss_span(step, 1e-9, removal=removal)
    law = losses_of(step, span / 2000, 1e-9, removal=removal)
    used = law.losses[law.masses > 0]
    assert span * 0.99 <= used[-1] - used[0] <= span * 1.01
    mean = float(law.masses @ law.losses)
    variance = float(law.masses @ np.square(law.losses - mean))
    assert 0.2 <= variance / loss_variance(step) <= 5
    assert is_tractable(step)


@pytest.mark.parametrize(
    "step",
    [
        Steps(0.01, 0.5, 1),
        Steps(1.0, 1e-12, 1),
        Steps(1.0, 0.5, 1, 2.0),
        Steps(1e9, 0.5, 1, law="laplace"),
        Steps(1.0, 0.5, 1, law=GaussianMixtures(0.01, 0.5)),
        Steps(1.0, 0.5, 1, law=FiniteLosses(FinitePair([0.5, 0.5], [0.5, 0.5]))),
    ],
)
def test_what_is_out_of_range_is_left_to_renyi_divergences(step: Steps) -> None:
    assert not is_tractable(step)
