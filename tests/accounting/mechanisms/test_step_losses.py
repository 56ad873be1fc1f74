"""The losses of one step on a grid dominate the exact law, which mpmath integrates in closed form."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.mechanisms.step_losses import loss_at, output_range, step_losses
from tests.accounting.budget.plans import exact_moment
from tests.accounting.mechanisms.test_composed_loss import one_step

STEPS = [(1.0, 0.1), (0.7, 0.01), (3.0, 0.5), (1.5, 1.0)]
IDS = ["1-tenth", "0.7-hundredth", "3-half", "1.5-all"]


@pytest.mark.parametrize("removal", [True, False], ids=["removal", "addition"])
@pytest.mark.parametrize(("sigma", "rate"), STEPS, ids=IDS)
def test_delta_of_the_grid_is_never_below_the_exact_one_and_close(sigma: float, rate: float, removal: bool) -> None:
    law = step_losses(1 / sigma, rate, 1e-3, 1e-18, removal=removal)
    for epsilon in (-0.3, 0.0, 0.05, 0.4, 1.1):
        grown = -np.expm1(np.minimum(epsilon - law.losses, 0.0))
        delta = float(law.masses @ grown) + law.infinite
        with mp.workdps(30):
            exact = one_step(mp.mpf(epsilon), mp.mpf(sigma), mp.mpf(rate), removal=removal)
        # Between two points of the grid the chord lies above the curve: by less than its step squared.
        assert exact <= delta <= exact + mp.mpf("1e-6")


@pytest.mark.parametrize("removal", [True, False], ids=["removal", "addition"])
@pytest.mark.parametrize(("sigma", "rate"), STEPS, ids=IDS)
def test_no_mass_is_lost(sigma: float, rate: float, removal: bool) -> None:
    law = step_losses(1 / sigma, rate, 1e-3, 1e-18, removal=removal)
    assert 1 <= law.masses.sum() + law.infinite <= 1 + 1e-11
    assert law.infinite <= 1.1e-18
    assert (law.masses >= 0).all()


@pytest.mark.parametrize(("sigma", "rate"), STEPS, ids=IDS)
@pytest.mark.parametrize("order", [1, 4])
def test_the_moment_is_that_of_the_binomial_sum(sigma: float, rate: float, order: int) -> None:
    law = step_losses(1 / sigma, rate, 1e-3, 1e-60, removal=True)
    exact = exact_moment(order, sigma, rate)
    weights, moment = law.tilted(order)
    assert exact <= moment == law.log_mgf(order)
    assert moment == pytest.approx(float(exact), abs=1e-5)
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)


def test_a_loss_keeps_its_digits_near_zero_and_far_away() -> None:
    for x, ratio, rate in ((0.5, 1.0, 0.01), (-30.0, 0.5, 0.3), (80.0, 2.0, 1e-6), (3.0, 1.0, 1.0)):
        with mp.workdps(40):
            r, q = mp.mpf(ratio), mp.mpf(rate)
            exact = mp.log(1 - q + q * mp.exp(r * x - r * r / 2))
        assert loss_at(x, ratio, rate) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("tail", [1e-6, 1e-15])
@pytest.mark.parametrize("rate", [0.01, 0.6])
def test_outside_the_range_lies_no_more_than_the_tail(tail: float, rate: float) -> None:
    _, high = output_range(1.5, rate, tail, removal=True)
    low, _ = output_range(1.5, rate, tail, removal=False)
    beyond = (1 - rate) * mp.ncdf(-high) + rate * mp.ncdf(1.5 - high)
    assert tail / 4 < beyond <= tail * (1 + 1e-9)
    assert tail / 4 < mp.ncdf(low) <= tail
    assert not math.isinf(high)
