"""Residual, curvature and their bounds, against sums over the law itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from study_protocol.queries.regression.families import (
    TOP_VARIANCE,
    FamilyName,
    clipped_poisson,
    excess_at_top,
    free_curvature,
    largest_curvature,
    parts,
    scales,
)

RATES = np.concatenate([np.geomspace(1e-8, 1e-2, 40), np.linspace(0.01, 60, 1500), np.geomspace(60, 1e5, 200)])


@pytest.mark.parametrize("high", [1.0, 2.0, 3.0, 8.0, 25.0])
def test_clipped_poisson_is_the_mean_of_clipped_counts_and_its_slope(high: float) -> None:
    rates = np.array([0.01, 0.7, 3.0, 12.0])
    counts = np.arange(400)
    clipped = np.minimum(counts, high)
    laws = stats.poisson.pmf(counts[None], rates[:, None])
    mean, curvature = clipped_poisson(rates, high)
    assert mean == pytest.approx(laws @ clipped, rel=1e-10, abs=1e-12)
    step = 1e-5
    ahead, behind = (clipped_poisson(rates * np.exp(sign * step), high)[0] for sign in (1, -1))
    assert curvature == pytest.approx((ahead - behind) / (2 * step), rel=1e-6, abs=1e-9)
    variance = laws @ clipped**2 - mean**2
    assert bool((variance <= curvature * (1 + 1e-9)).all())


@pytest.mark.parametrize("high", [1.0, 2.0, 3.0, 8.0, 25.0, 400.0])
def test_curvature_of_clipped_counts_stays_below_its_bound(high: float) -> None:
    mean, curvature = clipped_poisson(np.concatenate([RATES, np.linspace(0, 3 * high, 4001)]), high)
    bound = largest_curvature(high)
    assert float(curvature.max()) <= bound <= 1.01 * float(curvature.max())
    worst = np.maximum(mean, high - mean) ** 2 / high**2 + free_curvature(high) * curvature**2 / bound**2
    assert float(worst.max()) <= 1 + 1e-12
    assert free_curvature(high) > 0


@pytest.mark.parametrize(("family", "high"), [("logistic", 1.0), ("poisson", 1.0), ("poisson", 4.0), ("poisson", 30.0)])
@pytest.mark.parametrize("radius_square", [1.0, 7.3])
def test_norm_of_the_longest_vector_is_1_and_nearly_reached(
    family: FamilyName, high: float, radius_square: float
) -> None:
    factors = scales(family, radius_square, high, at_zero=False)
    predictors = np.linspace(-30, 30, 20_001)
    longest = 0.0
    for outcome in np.arange(high + 1):
        residual, curvature = parts(family, np.full(len(predictors), outcome), predictors, high)
        gradient = factors.gradient**2 * residual**2 * radius_square
        squares = factors.count**2 + gradient + factors.information**2 * curvature**2 * radius_square**2
        squares = squares + factors.square**2 * residual**4
        excess = excess_at_top(np.full(len(predictors), outcome), predictors, high)
        squares = squares + factors.top**2 * excess**2
        longest = max(longest, float(squares.max()))
    # Of counts up to 1 nothing can be said of the law: their excess is 0.
    assert (0.96 if family == "poisson" and high == 1 else 0.99) < longest <= 1 + 1e-12


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_at_zero_the_longest_vector_is_1(family: FamilyName) -> None:
    for high, radius_square in product([1.0] if family == "logistic" else [1.0, 5.0], [1.0, 9.0]):
        factors = scales(family, radius_square, high, at_zero=True)
        residual, curvature = parts(family, np.array([0.0, high]), np.zeros(2), high)
        squares = (factors.gradient * residual) ** 2 * radius_square + (
            factors.information * curvature * radius_square
        ) ** 2
        squares = squares + factors.square**2 * residual**4
        if family == "poisson":
            squares = squares + (factors.top * excess_at_top(np.array([0.0, high]), np.zeros(2), high)) ** 2
        # The squared residual and the excess have parts of their own, which at 0 are not filled.
        least = 0.99 if family == "logistic" else 0.91
        assert least < float(squares.max()) + factors.count**2 <= 1 + 1e-12


@pytest.mark.parametrize("high", [1.0, 2.0, 4.0, 10.0, 60.0])
def test_the_excess_at_the_high_has_mean_0_and_its_bounds_under_poisson(high: float) -> None:
    predictors, outcomes = np.linspace(-50, 50, 8001), np.arange(high + 1)
    excess = np.array([excess_at_top(np.full(8001, outcome), predictors, high) for outcome in outcomes])
    assert float(np.abs(excess).max()) <= 1 + 1e-12
    rates = np.exp(predictors)
    law = stats.poisson.pmf(outcomes[:, None], rates)
    law[-1] = stats.poisson.sf(high - 1, rates)
    assert (law * excess).sum(axis=0) == pytest.approx(np.zeros(8001), abs=1e-12)
    curvature = clipped_poisson(rates, high)[1]
    assert bool(((law * excess**2).sum(axis=0) <= TOP_VARIANCE * curvature + 1e-12).all())
    # A predictor that is a little off moves its mean to second order alone.
    near = predictors[np.abs(predictors) < 4]
    off = stats.poisson.pmf(outcomes[:, None], np.exp(near + 1e-4))
    off[-1] = stats.poisson.sf(high - 1, np.exp(near + 1e-4))
    moved = (off * excess[:, np.abs(predictors) < 4]).sum(axis=0)
    assert float(np.abs(moved).max()) < 1e-4 * 2e-3


def test_linear_parts_share_the_norm() -> None:
    factors = scales("linear", 3.0, 1.4, at_zero=False)
    gradient, square = (factors.gradient * 1.4) ** 2 * 3, (factors.square * 1.4**2) ** 2
    assert factors.count**2 + gradient + (factors.information * 3) ** 2 + square == pytest.approx(1.0, rel=1e-12)
