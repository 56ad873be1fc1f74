"""Mixtures of Gaussians: against tails in 30 digits, random contributions, the discrete law, and dp-accounting."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld
from dp_accounting.pld import privacy_loss_distribution

from accounting import ClassicalAccountant, DiscreteGaussianEvent, GaussianEvent, PoissonSampledEvent, Relation
from accounting.mechanisms.composed_loss import composed_epsilon
from accounting.mechanisms.gaussian_mixtures import (
    GaussianMixtures,
    _masses,  # pyright: ignore[reportPrivateUsage]
    rounded_noise,
)
from accounting.mechanisms.step_losses import UNIT
from accounting.mechanisms.unsampled import Steps

mp: Any = mpmath
Law = list[tuple[Any, Any]]


def binomial(noise: float, rate: float, records: int, sign: int = 1) -> Law:
    q = mp.mpf(rate)
    return [
        (mp.binomial(records, j) * q**j * (1 - q) ** (records - j), sign * j / mp.mpf(noise))
        for j in range(records + 1)
    ]


def exact_delta(first: Law, second: Law, epsilon: float) -> float:
    """δ(ε) from normal tails, where the loss rises with the output."""
    scale = mp.exp(mp.mpf(epsilon))

    def gap(x: Any) -> Any:
        return sum(w * mp.npdf(x, m, 1) for w, m in first) - scale * sum(w * mp.npdf(x, m, 1) for w, m in second)

    low, high = mp.mpf(-60), mp.mpf(60)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if gap(middle) > 0 else (middle, high)
    if high >= 59:
        return 0.0
    return float(sum(w * mp.ncdf(m - high) for w, m in first) - scale * sum(w * mp.ncdf(m - high) for w, m in second))


@pytest.mark.quick(
    "0.7-0.5-1-True-False", "0.7-0.5-1-True-True", "1.0-0.1-1-True-False", "1.0-0.1-1-True-True", "1.0-0.1-2-False-True"
)
@pytest.mark.parametrize("removal", [True, False])
@pytest.mark.parametrize(
    ("noise", "rate", "records", "exchanged"),
    [(1.0, 0.1, 1, True), (0.7, 0.5, 1, True), (2.0, 0.01, 3, True), (1.0, 0.1, 2, False), (3.0, 0.02, 8, False)],
)
def test_one_step_dominates_its_exact_curve_and_stays_close(
    noise: float, rate: float, records: int, exchanged: bool, removal: bool
) -> None:
    step = GaussianMixtures(noise, rate, records, exchanged)
    losses = step.losses(2.0**-12, 1e-14, removal=removal)
    assert float(losses.masses.sum()) + losses.infinite == pytest.approx(1, abs=1e-11)
    with mp.workdps(30):
        sampled, mirrored = (binomial(noise, rate, records, sign) for sign in (1, -1))
        nothing: Law = [(mp.mpf(1), mp.mpf(0))]
        first, second = (sampled, mirrored) if exchanged else (sampled, nothing) if removal else (nothing, mirrored)
        for epsilon in (0.0, 0.01, 0.1, 0.5, 2.0):
            above = losses.losses + losses.drift > epsilon
            reached = losses.losses[above] + losses.drift
            found = float((losses.masses[above] * -np.expm1(epsilon - reached)).sum()) + losses.infinite
            exact = exact_delta(first, second, epsilon)
            assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-3) + 1e-7


def test_no_contribution_below_the_clip_norm_costs_more() -> None:
    """Contributions in a plane, by sums over a fine grid: none has a larger δ than two that are opposite."""
    rng = np.random.default_rng(5)
    axis = np.linspace(-9, 9, 500)
    x, y = np.meshgrid(axis, axis)
    cell = (axis[1] - axis[0]) ** 2 / (2 * math.pi)

    def density(point: tuple[float, float]) -> Any:
        return np.exp(-((x - point[0]) ** 2 + (y - point[1]) ** 2) / 2)

    def worst(a: tuple[float, float], b: tuple[float, float], rate: float, epsilon: float) -> float:
        first, second = ((1 - rate) * density((0, 0)) + rate * density(mean) for mean in (a, b))
        return float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * cell)

    for rate, epsilon in ((0.1, 0.1), (0.5, 0.5), (0.5, -0.5)):
        most = worst((1.0, 0.0), (-1.0, 0.0), rate, epsilon)
        for _ in range(12):
            sizes, angles = np.sqrt(rng.random(2)), 2 * math.pi * rng.random(2)
            a, b = zip(sizes * np.cos(angles), sizes * np.sin(angles), strict=True)
            assert worst(a, b, rate, epsilon) <= most + 1e-6


EXCHANGES = [(1.1, 0.01, 1000), (2.0, 0.1, 100), (0.8, 0.3, 20)]


@pytest.mark.quick("2.0-0.1-100")
@pytest.mark.parametrize(("noise", "rate", "steps"), EXCHANGES)
def test_an_exchange_is_that_of_dp_accounting(noise: float, rate: float, steps: int) -> None:
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    peer = pld.PLDAccountant(relation, value_discretization_interval=1e-4)
    peer.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), steps)
    account = ClassicalAccountant(delta=1e-5, relation=Relation.REPLACE_ONE)
    account.step(noise_multiplier=noise, sampling_rate=rate, count=steps)
    assert account.certificate().composition == "pld"
    # Theirs rounds up too, on a coarser grid.
    assert account.epsilon() == pytest.approx(peer.get_epsilon(1e-5), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("records", "rate", "steps"), [(2, 0.1, 100), (5, 0.02, 200)])
def test_a_group_is_the_mixture_of_dp_accounting(records: int, rate: float, steps: int) -> None:
    noise = 2.0
    weights = [math.comb(records, j) * rate**j * (1 - rate) ** (records - j) for j in range(records + 1)]
    peer = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        noise, list(range(records + 1)), weights, value_discretization_interval=1e-3
    ).self_compose(steps)
    account = ClassicalAccountant(delta=1e-5)
    account.step(noise_multiplier=noise, sampling_rate=rate, count=steps)
    assert account.epsilon_at(1e-5, group_size=records) == pytest.approx(peer.get_epsilon_for_delta(1e-5), rel=2e-3)


def test_one_record_of_a_group_of_one_is_the_sampled_gaussian() -> None:
    for noise, rate, steps in EXCHANGES:
        plain = composed_epsilon([Steps(noise, rate, steps)], 1e-6, 10.0)
        mixed = composed_epsilon([Steps(1.0, rate, steps, law=GaussianMixtures(noise, rate))], 1e-6, 10.0)
        assert mixed == pytest.approx(plain, rel=1e-4)


@pytest.mark.slow_cases("0.05")
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_noise_on_a_grid_is_bounded_by_less_continuous_noise(epsilon: float) -> None:
    """An exchange under discrete Gaussian noise of 8 steps to its deviation, by sums over the lattice."""
    noise_std, moved, rate = 8.0, 8, 0.2
    account = ClassicalAccountant(delta=1e-5, relation=Relation.REPLACE_ONE)
    account.compose(PoissonSampledEvent(rate, DiscreteGaussianEvent(noise_std, float(moved))))
    places = np.arange(-400, 401)
    base, up, down = (np.exp(-((places - shift) ** 2) / (2 * noise_std**2)) for shift in (0, moved, -moved))
    first, second = ((1 - rate) * base + rate * law for law in (up, down))
    exact = float(np.maximum(first - math.exp(epsilon) * second, 0).sum() / base.sum())
    assert exact <= account.delta_for(epsilon) <= exact * 1.25
    assert rounded_noise(1.0, 2.0**16) == pytest.approx(1, abs=1e-9)


def test_what_cannot_be_computed_is_left_to_renyi_divergences() -> None:
    assert not GaussianMixtures(0.01, 0.5).is_tractable
    assert not GaussianMixtures(1.0, 1e-12).is_tractable
    account = ClassicalAccountant(delta=1e-5, relation=Relation.REPLACE_ONE)
    account.compose(PoissonSampledEvent(0.5, GaussianEvent(0.01)))
    assert account.certificate().composition == "rdp"


def test_masses_of_cells_are_right_to_the_rounding_of_their_exponents() -> None:
    """The slack of `_on_grid` takes 16 units and 3x² at an output x. Cells on both sides of the narrow ones."""
    for middle in (0.0, 0.2, 1.0, 4.0, 9.0):
        for width in (1e-6, 0.1, 0.499, 0.501, 1.0):
            edges = middle + np.array([-width / 2, width / 2]) / max(1.0, middle)
            mass = float(_masses(edges, [(1.0, 0.0)])[0])
            with mp.workdps(40):
                # In the tail where both are small.
                exact = mp.ncdf(-mp.mpf(edges[0])) - mp.ncdf(-mp.mpf(edges[1]))
                assert abs(float(mass / exact - 1)) <= (16 + 3 * edges[1] ** 2) * UNIT
