"""The exact inversion: against closed forms, against two roundings of the other accountant, and on another line."""

from __future__ import annotations

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from accounting.mechanisms.unsampled import Steps, unsampled_epsilon
from research.enforcement.exact import GaussianSteps, exact_epsilon


def test_unsampled_steps_have_their_closed_form() -> None:
    closed = unsampled_epsilon([Steps(20.0, 1.0, 28, 2.0**60)], 1e-5, 5.0)
    assert exact_epsilon([GaussianSteps(20.0, 1.0, 28)], 1e-5, 1.0) == pytest.approx(closed, rel=1e-7)


@pytest.mark.parametrize(("noise", "rate", "count", "squares"), [(1.0, 0.1, 10, 0.25), (2.0, 0.01, 200, 0.04)])
def test_it_lies_closely_below_the_peer_s_bound(noise: float, rate: float, count: int, squares: float) -> None:
    steps = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=2e-4)
    asked = pld.from_gaussian_mechanism(squares**-0.5, value_discretization_interval=2e-4)
    peer = steps.self_compose(count).compose(asked)
    bound = float(peer.get_epsilon_for_delta(1e-5))
    found = exact_epsilon([GaussianSteps(noise, rate, count), GaussianSteps(squares**-0.5, 1.0, 1)], 1e-5, bound)
    assert bound - 2e-5 < found <= bound


def test_the_line_changes_nothing_also_where_few_large_losses_make_the_sum() -> None:
    parts = [GaussianSteps(0.4, 0.0037388689004454346, 151)]
    found = [exact_epsilon(parts, 2.761769480638827e-09, near) for near in (14.5, 15.1, 16.0)]
    assert found == pytest.approx([found[0]] * 3, abs=1e-8)


def test_a_far_guess_is_refused() -> None:
    with pytest.raises(ValueError, match="epsilon is above"):
        exact_epsilon([GaussianSteps(1.0, 0.1, 10)], 1e-5, 1.0)
    with pytest.raises(ValueError, match="epsilon is below"):
        exact_epsilon([GaussianSteps(1.0, 0.1, 10)], 1e-5, 9.0)
