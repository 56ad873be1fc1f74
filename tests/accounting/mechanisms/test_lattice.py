"""Discrete noise against rounded continuous noise, and sums of discrete noise against one, in many digits."""

import mpmath as mp
import numpy as np
import pytest

from accounting.errors import InvalidArgument
from accounting.mechanisms.lattice import LESS_VARIANCE, lattice_error, summation_error


def exact_distance(std):
    """Total variation between N_Z(0, s²) and round(N(0, s² − 1/12)), to 40 digits; tails beyond 14 s are below them."""
    with mp.workdps(60):
        s = mp.mpf(std)
        spread = mp.sqrt(2 * (s * s - mp.mpf(1) / 12))
        reach = int(14 * s)
        weights = [mp.exp(-mp.mpf(k * k) / (2 * s * s)) for k in range(reach + 1)]
        total = weights[0] + 2 * mp.fsum(weights[1:])
        half = mp.mpf(1) / 2
        rounded = [(mp.erf((k + half) / spread) - mp.erf((k - half) / spread)) / 2 for k in range(reach + 1)]
        apart = [abs(weight / total - other) for weight, other in zip(weights, rounded, strict=True)]
        return apart[0] / 2 + mp.fsum(apart[1:])


@pytest.mark.parametrize("std", [8.0, 11.3, 16.0, 33.0, 64.0])
def test_the_bound_holds_and_is_less_than_three_times_the_truth(std):
    exact = exact_distance(std)
    assert exact <= lattice_error(std) <= 3 * exact


def test_the_error_falls_as_the_fourth_power():
    assert exact_distance(16.0) / exact_distance(32.0) == pytest.approx(16.0, rel=1e-3)


def test_without_the_smaller_variance_it_would_fall_as_the_second_power_only():
    # Why LESS_VARIANCE is taken off: the same distance to the rounding of a Gaussian of variance s² itself.
    with mp.workdps(40):
        s = mp.mpf(16)
        weights = [mp.exp(-mp.mpf(k * k) / (2 * s * s)) for k in range(225)]
        total = weights[0] + 2 * mp.fsum(weights[1:])
        spread, half = mp.sqrt(2) * s, mp.mpf(1) / 2
        rounded = [(mp.erf((k + half) / spread) - mp.erf((k - half) / spread)) / 2 for k in range(225)]
        apart = abs(weights[0] / total - rounded[0]) / 2 + mp.fsum(
            abs(w / total - r) for w, r in zip(weights[1:], rounded[1:], strict=True)
        )
    assert apart > 1000 * lattice_error(16.0)
    assert LESS_VARIANCE == 1 / 12


def law(std, reach):
    places = np.arange(-reach, reach + 1)
    weights = [mp.exp(-mp.mpf(int(k) ** 2) / (2 * mp.mpf(std) ** 2)) for k in places]
    total = mp.fsum(weights)
    return [weight / total for weight in weights]


def summed(std, shares, reach):
    """The law of the sum by exact convolution, on −shares·reach … shares·reach."""
    one = law(std, reach)
    found = one
    for _ in range(shares - 1):
        out = [mp.mpf(0)] * (len(found) + len(one) - 1)
        for i, left in enumerate(found):
            for j, right in enumerate(one):
                out[i + j] += left * right
        found = out
    return found


@pytest.mark.parametrize(("std", "shares"), [(0.5, 3), (0.7, 4), (1.0, 3), (1.0, 5), (1.5, 3), (2.0, 3)])
def test_shares_sum_to_one_noise_within_the_bound(std, shares):
    with mp.workdps(40):
        reach = int(12 * std) + 2
        found = summed(std, shares, reach)
        whole = law(std * mp.sqrt(shares), shares * reach)
        apart = mp.fsum(abs(a - b) for a, b in zip(found, whole, strict=True)) / 2
        assert apart <= summation_error(std, shares)


def test_reference_values_for_ten_shares():
    # Kairouz, Liu & Steinke 2021, as the design states them.
    assert summation_error(1.0, 10) == pytest.approx(5.435e-4, rel=1e-3)
    assert summation_error(2.0, 10) == pytest.approx(7.157e-17, rel=1e-3)
    assert summation_error(3.0, 10) == pytest.approx(2.65e-38, rel=5e-3)


def test_the_shares_of_a_query_cost_nothing():
    # A query has 2^20 grid steps to its deviation, and a secure sum 1,000 clients at most.
    assert summation_error(2.0**20 / np.sqrt(1000), 1000) == 0.0


@pytest.mark.parametrize("std", [0.0, 7.9, float("nan"), -1.0])
def test_a_grid_too_coarse_for_the_bound_is_refused(std):
    with pytest.raises(InvalidArgument):
        lattice_error(std)


@pytest.mark.parametrize("std", [0.0, 0.49, float("nan")])
def test_shares_too_narrow_for_the_bound_are_refused(std):
    with pytest.raises(InvalidArgument):
        summation_error(std, 3)
