"""One step's losses against the integral and the peer's masses, dominating, far in the tails."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from accounting.mechanisms.privacy_loss import (
    LossGrid,
    connect_the_dots,
    hockey_stick,
    log_normal_cdf,
    normal_cdf,
    step_losses,
)

WORKLOADS = [(1.1, 256 / 60000), (0.7, 512 / 50000), (1.0, 0.1), (2.0, 0.01), (4.0, 1.0)]


@pytest.mark.parametrize(("sigma", "rate"), WORKLOADS)
def test_a_single_step_has_the_masses_of_dp_accountings_own_constructor(sigma: float, rate: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval = 1e-3
    theirs = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=interval)
    for removal, peer in ((True, theirs._pmf_remove.to_dense_pmf()), (False, theirs._pmf_add.to_dense_pmf())):
        first, masses, infinite = connect_the_dots(1 / sigma, rate, interval, removal=removal)
        assert infinite < 1e-20
        offset = peer._lower_loss - first
        low, high = max(offset, 0), min(masses.size, offset + peer.size)
        # Second differences of float64 values near 1, divided by the interval: a few times 4e-16/1e-3 in each.
        assert np.abs(masses[low:high] - peer._probs[low - offset : high - offset]).max() < 1e-11
        # Beyond the library's range: at low losses rectified round-off, which can only raise δ.
        assert masses[:low].sum() < 1e-9
        assert masses[high:].sum() < 1e-20


@pytest.mark.quick("False-0.05-0.01", "False-0.05-1.0", "False-1.0-0.01", "True-0.05-0.01")
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


def test_the_normal_tail_keeps_its_digits() -> None:
    with mp.workdps(30):
        exact = [float(mp.ncdf(-x)) for x in (8, 20, 35)]
        logs = [float(mp.log(mp.ncdf(-x))) for x in (8, 20, 35, 200)]
    assert normal_cdf(np.array([-8.0, -20.0, -35.0])) == pytest.approx(exact, rel=1e-11)
    assert log_normal_cdf(np.array([-8.0, -20.0, -35.0, -200.0])) == pytest.approx(logs, rel=1e-12)
