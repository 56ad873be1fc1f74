"""Renyi orders in place of λ wherever an order is asked for; what objects show of themselves; δ for a given ε."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from accounting import (
    AveragedAccountant,
    BayesianAccountant,
    BayesianSpec,
    EstimateSpec,
    FilterSpec,
    IndividualFilter,
    InvalidArgument,
    Odometer,
    calibrate_noise,
    delta_from_moments,
    epsilon_from_moments,
    largest_moment,
    log_moment,
    replace_one_moment,
)

STEP = {"noise_std": 2.0, "sampling_rate": 0.1}
BASE = {"delta": 1e-5, "estimator_failure_probability": 1e-6, "max_steps": 3}
TARGET = {"epsilon": 2.0, "delta": 1e-5, "sampling_rate": 0.1, "steps": 10}
# Each: the call, the same order as λ and as α, and whether neither is right, too.
PAIRS: dict[str, tuple[Callable[..., object], dict[str, object], dict[str, object], bool]] = {
    "log_moment": (
        lambda **by: log_moment(distance=1.0, **STEP, **by).tolist(),
        {"order": [2, 8]},
        {"alpha": [3, 9]},
        False,
    ),
    "replace_one": (
        lambda **by: replace_one_moment(distance=1.0, **STEP, **by).item(),
        {"order": 8},
        {"alpha": 9},
        False,
    ),
    "epsilon": (
        lambda orders=None, alphas=None: epsilon_from_moments(orders, [0.1, 0.9], 1e-5, alphas=alphas),
        {"orders": [2, 8]},
        {"alphas": [3, 9]},
        False,
    ),
    "delta": (
        lambda orders=None, alphas=None: delta_from_moments(orders, [0.1, 0.9], 1.0, alphas=alphas),
        {"orders": [2, 8]},
        {"alphas": [3, 9]},
        False,
    ),
    "largest": (
        lambda order=None, alpha=None: largest_moment(order, 1.0, 1e-5, alpha=alpha),
        {"order": 8},
        {"alpha": 9},
        False,
    ),
    "filter": (lambda **by: FilterSpec(delta=1e-5, limit_epsilon=2.0, **by), {"order": 8.0}, {"alpha": 9.0}, False),
    "bayesian": (lambda **by: BayesianSpec(**BASE, **by), {"orders": [2.0, 8.0]}, {"alphas": [3.0, 9.0]}, False),
    "bayesian filter": (
        lambda **by: BayesianSpec(orders=[2.0], **BASE, **by),
        {"filter_order": 8.0},
        {"filter_alpha": 9.0},
        True,
    ),
    "odometer": (lambda **by: Odometer(delta=1e-5, **by).state(), {"order": 8.0}, {"alpha": 9.0}, True),
    "noise": (lambda **by: calibrate_noise(**TARGET, **by), {"order": 8.0}, {"alpha": 9.0}, True),
}


@pytest.mark.parametrize("name", PAIRS)
def test_alpha_is_lambda_plus_one_and_both_are_an_error(name: str) -> None:
    call, order, alpha, neither = PAIRS[name]
    assert call(**order) == call(**alpha)
    with pytest.raises(InvalidArgument):
        call(**order, **alpha)
    (word,) = alpha
    wrong = [1.0] if isinstance(alpha[word], list) else 1.0
    with pytest.raises(InvalidArgument, match=f"^{word}:"):
        call(**{word: wrong})
    if not neither:
        with pytest.raises(InvalidArgument):
            call()


def test_every_account_shows_what_it_is_and_nothing_secret() -> None:
    bayesian = BayesianAccountant(BayesianSpec(orders=[4.0], estimator="betting", **BASE))
    bayesian.step([0.1, 0.2] * 50, noise_std=2.0, sampling_rate=0.1, max_distance=1.0)
    assert repr(bayesian) == (
        f"BayesianAccountant(bayesian, holder, betting, path, delta=1e-05, steps=1, epsilon={bayesian.epsilon():.4g})"
    )
    assert repr(Odometer(delta=1e-5, order=8.0)) == (
        "Odometer(delta=1e-05, mode='checkpoints', order=8.0, limit_epsilon=None, steps=0, shown=[])"
    )
    members = IndividualFilter(FilterSpec(order=8.0, delta=1e-5, limit_epsilon=3.0), members=3)
    members.admit([0.1, 0.77, 0.2], noise_std=2.0, sampling_rate=0.5, max_distance=1.0)
    assert "members=3, steps=1" in repr(members)
    assert "array" not in repr(members)
    assert "0.7" not in repr(members)
    spec = EstimateSpec(delta=1e-3, estimator_failure_probability=1e-4)
    averaged = AveragedAccountant(spec, members=100, max_ratio=0.5, bins=8)
    assert repr(averaged) == "AveragedAccountant(delta=0.001, estimator='betting', members=100, steps=0)"


def test_the_filters_delta_for_epsilon_is_its_bound_read_elsewhere() -> None:
    members = IndividualFilter(FilterSpec(order=8.0, delta=1e-5, limit_epsilon=3.0), members=3)
    assert members.delta_for(1.0) == 0.0
    members.admit(np.full(3, 0.5), noise_std=2.0, sampling_rate=0.5, max_distance=1.0)
    assert members.delta_for(3.0) == pytest.approx(1e-5, rel=1e-9)
    assert members.delta_for(3.5) < 1e-5 < members.delta_for(2.5)
    odometer = Odometer(delta=1e-5, order=8.0)
    odometer.step(noise_multiplier=2.0, sampling_rate=0.1, count=10)
    # A first checkpoint is read at δ/2.
    assert odometer.delta_for(odometer.show()) == pytest.approx(0.5e-5, rel=1e-9)
