"""Unsampled Gaussians: the closed form in 40 digits, and the discrete law by its defining sums."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import pytest

from accounting import ClassicalAccountant, DiscreteGaussianEvent, GaussianEvent
from accounting.mechanisms.unsampled import (
    Steps,
    gaussian_deltas,
    lattice_excess,
    unsampled_delta,
    unsampled_epsilon,
)


def analytic(ratio: float, epsilon: float) -> mp.mpf:
    """Balle & Wang 2018, Theorem 8."""
    r, e = mp.mpf(ratio), mp.mpf(epsilon)
    return mp.ncdf(r / 2 - e / r) - mp.exp(e) * mp.ncdf(-r / 2 - e / r)


@pytest.mark.parametrize("ratio", [1e-4, 0.03, 0.7, 2.5, 12.0])
@pytest.mark.parametrize("delta", [0.01, 1e-6, 1e-12, 1e-30])
def test_the_closed_form_is_never_below_itself_in_forty_digits(ratio: float, delta: float) -> None:
    with mp.workdps(40):
        steps = [Steps(2 / ratio, 1.0, 4)]
        epsilon = unsampled_epsilon(steps, delta, 1000.0)
        if epsilon == 0:
            assert analytic(ratio, 0.0) <= delta
            return
        assert analytic(ratio, epsilon) <= delta <= analytic(ratio, epsilon * (1 - 1e-6))
        assert analytic(ratio, epsilon) <= unsampled_delta(steps, epsilon) <= delta


def discrete(std: float, shifts: tuple[int, ...], epsilon: float) -> mp.mpf:
    """Σ max(0, P(x) − e^ε P(x − Δ)) over the losses of one or two coordinates, both directions equal by reflection."""
    s2, reach = mp.mpf(std) ** 2, int(14 * std)
    line = {k: mp.exp(-mp.mpf(k * k) / (2 * s2)) for k in range(-reach, reach + 1)}
    total = mp.fsum(line.values())
    law: dict[int, mp.mpf] = {0: mp.mpf(1)}
    # ⟨x, Δ⟩ decides the loss.
    for shift in shifts:
        added: dict[int, mp.mpf] = {}
        for (place, mass), (k, weight) in itertools.product(law.items(), line.items()):
            added[place + shift * k] = added.get(place + shift * k, mp.mpf(0)) + mass * weight / total
        law = added
    square = sum(shift * shift for shift in shifts)
    losses = ((mass, (mp.mpf(place) + mp.mpf(square) / 2) / s2) for place, mass in law.items())
    return mp.fsum(mass * -mp.expm1(epsilon - loss) for mass, loss in losses if loss > epsilon)


@pytest.mark.slow_cases("30.0-shifts4")
@pytest.mark.parametrize(("std", "shifts"), [(8.0, (1,)), (8.0, (8,)), (8.0, (5,)), (12.5, (9,)), (30.0, (12,))])
def test_one_coordinate_of_the_discrete_law_stays_under_the_bound_and_passes_the_continuous_one(
    std: float, shifts: tuple[int, ...]
) -> None:
    above = 0.0
    with mp.workdps(30):
        size = float(mp.sqrt(sum(x * x for x in shifts)))
        steps = [Steps(std / size, 1.0, 1, std)]
        for z in (1.0, 2.5, 4.0, 5.5, 7.0):
            for fraction in (0.0, 0.17, 0.33, 0.5, 0.71, 0.93):
                # All places between two lattice points: losses lie Δ/s² apart.
                epsilon = z * size / std + (size / std) ** 2 / 2 + fraction * size / std**2
                truth = discrete(std, shifts, epsilon)
                assert truth <= unsampled_delta(steps, epsilon), (z, fraction)
                above = max(above, float(truth / analytic(size / std, epsilon)) - 1)
    # The continuous formula alone would claim too little, by a percent at such a coarse grid.
    assert above > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("shifts", [(3, 4), (1, 1), (7, 1)])
def test_two_coordinates_too(shifts: tuple[int, ...]) -> None:
    with mp.workdps(25):
        size, std = float(mp.sqrt(sum(x * x for x in shifts))), 8.0
        for z, fraction in itertools.product((1.5, 4.0, 6.0), (0.0, 0.4, 0.8)):
            epsilon = z * size / std + (size / std) ** 2 / 2 + fraction / std**2
            assert discrete(std, shifts, epsilon) <= unsampled_delta([Steps(std / size, 1.0, 1, std)], epsilon)


def test_at_the_projects_grids_the_excess_is_below_a_millionth_of_delta() -> None:
    """2¹⁶ steps to a deviation, beside δ = 1e-12 at noise multiplier 1."""
    epsilon = unsampled_epsilon([Steps(1.0, 1.0, 1)], 1e-12, 50.0)
    with mp.workdps(30):
        assert unsampled_delta([Steps(1.0, 1.0, 1)], epsilon) <= analytic(1.0, epsilon) * (1 + mp.mpf(1e-6))
    assert lattice_excess([Steps(1.0, 1.0, 1)]) < 1e-11


def test_a_histogram_of_integers_pays_for_its_lattice() -> None:
    """Counts with noise 10: the accounts of published histograms."""
    fine, coarse = (ClassicalAccountant(delta=1e-6) for _ in range(2))
    fine.compose(GaussianEvent(10.0), 3)
    coarse.compose(DiscreteGaussianEvent(10.0, sensitivity=1.0), 3)
    assert fine.epsilon() < coarse.epsilon() < fine.epsilon() * 1.01
    assert coarse.certificate().composition == "analytic-gaussian"
    # A lattice coarser than the bound reaches is read by Rényi divergences, and the certificate says so.
    coarser = ClassicalAccountant(delta=1e-6)
    coarser.compose(DiscreteGaussianEvent(4.0, sensitivity=1.0))
    assert coarser.certificate().composition == "rdp"


@pytest.mark.parametrize("ratio", [1e-6, 0.3, 3.0, 60.0, 740.872516888656, 1000.0])
@pytest.mark.parametrize("deviations", [-2.0, 0.0, 3.3, 9.156, 30.0])
def test_both_roundings_hold_the_closed_form_between_them(ratio: float, deviations: float) -> None:
    epsilon = max(0.0, ratio * (deviations + ratio / 2))
    low, high = gaussian_deltas(ratio, epsilon)
    with mp.workdps(60):
        r, e = mp.mpf(ratio), mp.mpf(epsilon)
        tails = [mp.erfc((e / r + sign * r / 2) / mp.sqrt(2)) / 2 for sign in (-1, 1)]
        assert low <= tails[0] - mp.exp(e) * tails[1] <= high


def test_far_beyond_all_losses_delta_is_the_smallest_float_not_one() -> None:
    assert gaussian_deltas(1e-200, 1.0) == gaussian_deltas(1.0, 1e300) == (0.0, 0.0)
    assert unsampled_delta([Steps(1e200, 1.0, 1)], 1.0) == math.nextafter(0.0, 1.0)
