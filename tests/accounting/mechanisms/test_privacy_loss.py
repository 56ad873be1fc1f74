"""Composed loss distributions: round-off, masses, the grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.fft import fft, ifft

from accounting import ClassicalAccountant
from accounting.mechanisms.loss_grid import connect_the_dots
from accounting.mechanisms.privacy_loss import Steps, grid_interval, numeric_error


def account(sigma: float, rate: float, steps: int, delta: float, **kind: Any) -> ClassicalAccountant:
    out = ClassicalAccountant(delta=delta, **kind)
    out.step(noise_multiplier=sigma, sampling_rate=rate, count=steps)
    return out


# sigma, rate, steps, delta
WORKLOADS = [
    (1.1, 256 / 60000, 14062, 1e-5),
    (0.7, 512 / 50000, 10000, 1e-5),
    (1.0, 0.1, 300, 1e-3),
    (2.0, 0.01, 300, 1e-5),
    (4.0, 1.0, 100, 1e-6),
]


@pytest.mark.parametrize(("sigma", "rate", "steps", "delta"), WORKLOADS)
def test_fft_round_off_stays_under_the_declared_error(sigma: float, rate: float, steps: int, delta: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval = 1e-3
    single = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=interval)
    for pmf in (single._pmf_remove, single._pmf_add):
        composed = pmf.to_dense_pmf().self_compose(steps)
        size = len(composed._probs)
        probabilities = np.asarray(pmf.to_dense_pmf()._probs, dtype=np.longdouble)
        length = max(size, probabilities.size)
        # scipy keeps 80-bit floats: 11 more bits than the library used.
        better = np.real(ifft(fft(probabilities, length) ** steps))
        shift = composed._lower_loss - steps * pmf.to_dense_pmf()._lower_loss
        errors = np.cumsum((np.roll(better, -shift)[:size] - composed._probs)[::-1])
        assert float(np.abs(errors).max()) <= numeric_error([Steps(sigma, rate, steps)])


@pytest.mark.parametrize(("sigma", "rate"), [w[:2] for w in WORKLOADS])
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


def test_the_grid_is_a_power_of_two_times_the_finest() -> None:
    for steps, bound in [([Steps(1.0, 0.1, 10)], 3.0), ([Steps(0.1, 1.0, 1)], 90.0), ([Steps(50.0, 0.01, 9)], 0.01)]:
        assert math.log2(grid_interval(steps, 1e-5, bound) / 1e-4) == int(
            math.log2(grid_interval(steps, 1e-5, bound) / 1e-4)
        )
