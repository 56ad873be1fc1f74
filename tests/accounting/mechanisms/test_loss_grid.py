"""One step's losses on a grid: against the integral, dominating, digits in the far tails."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from accounting.mechanisms.loss_grid import LossGrid, hockey_stick, step_losses


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("ratio", [0.05, 1.0, 3.0])
@pytest.mark.parametrize("removal", [True, False])
def test_one_steps_hockey_stick_is_the_integral(rate: float, ratio: float, removal: bool) -> None:
    def densities(x: float) -> tuple[float, float]:
        mixed = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x - ratio)
        return (mixed, float(norm.pdf(x))) if removal else (float(norm.pdf(x)), mixed)

    for epsilon in (-0.5, 0.0, 0.02, 1.0):
        exact = quad(
            lambda x, e=epsilon: max(0.0, densities(x)[0] - math.exp(e) * densities(x)[1]), -12, 16, limit=400
        )[0]
        found = float(hockey_stick(np.array([epsilon]), ratio, rate, removal=removal)[0])
        assert found == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize(("ratio", "rate"), [(0.5, 0.1), (1.4, 0.01), (0.02, 1.0), (2.5, 0.999)])
@pytest.mark.parametrize("removal", [True, False])
def test_far_tails_keep_their_digits(ratio: float, rate: float, removal: bool) -> None:
    """P(loss > ε) − e^ε Q(loss > ε) from 50-digit normal tails, wherever δ is above 1e-13."""
    with mp.workdps(50):
        r, q = mp.mpf(ratio), mp.mpf(rate)
        for epsilon in np.linspace(0.001, 6.0, 25):
            e = mp.mpf(float(epsilon))
            growth = mp.exp(e if removal else -e) - 1 + q
            if growth <= 0:
                continue
            edge = mp.log(growth / q) / r + r / 2
            tails = [mp.ncdf(-edge if removal else edge), mp.ncdf(r - edge if removal else edge - r)]
            mixed = (1 - q) * tails[0] + q * tails[1]
            exact = mixed - mp.exp(e) * tails[0] if removal else tails[0] - mp.exp(e) * mixed
            found = float(hockey_stick(np.array([float(epsilon)]), ratio, rate, removal=removal)[0])
            if exact > 1e-13:
                assert abs(found / exact - 1) < 1e-9 or abs(found - exact) < 1e-15


@pytest.mark.parametrize("removal", [True, False])
def test_the_discretised_step_dominates_at_every_epsilon(removal: bool) -> None:
    grid, ratio, rate = LossGrid(0.01, 4096), 0.7, 0.2
    masses, infinite = step_losses(ratio, rate, grid, removal=removal)
    losses = np.fft.fftfreq(grid.size, 1 / grid.size) * grid.interval
    epsilons = np.linspace(-0.6, 3, 777)
    over = np.clip(-np.expm1(epsilons[:, None] - losses), 0, None) @ masses + infinite
    exact = hockey_stick(epsilons, ratio, rate, removal=removal)
    assert (over >= exact - 1e-14).all()
    assert float((over - exact).max()) < 1e-3
    assert masses.sum() + infinite == pytest.approx(1.0, abs=1e-9)
