"""Sums of products: means, covariances and what noise and another sample of patients change."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.second_moments import (
    SecondMoments,
    correlations,
    covariances,
    means,
    nearest_possible,
    resample_counts,
    rounded_sum,
    simulate_estimates,
)


def moments(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]], std: float = 0.0) -> SecondMoments:
    u = np.column_stack([np.ones(len(rows)), rows])
    return SecondMoments(u.T @ u, np.full((u.shape[1], u.shape[1]), std))


def test_means_covariances_and_correlations_are_those_of_numpy() -> None:
    rows = np.random.default_rng(1).normal([0.2, -0.1, 0.4], [0.3, 0.1, 0.2], (50, 3))
    found = moments(rows)
    assert found.patients == 50
    assert means(found.matrix[None])[0] == pytest.approx(rows.mean(axis=0))
    assert covariances(found.matrix[None], 50)[0] == pytest.approx(np.cov(rows.T), abs=1e-14)
    assert correlations(found.covariance[None])[0] == pytest.approx(np.corrcoef(rows.T), abs=1e-12)


def test_every_vector_is_rounded_to_the_grid_before_the_sum() -> None:
    """0.3 is nearest to 0.25, so that ten patients are 10 steps and not 12, also over a block's end."""
    count = 5000
    total = rounded_sum(np.full((count, 1), 0.3), lambda block: np.column_stack([block, -2 * block]), 2, 0.25)
    assert total.tolist() == [count, -2 * count]
    assert total.dtype == np.int64
    assert rounded_sum(np.zeros((0, 1)), lambda block: block, 1, 0.25).tolist() == [0]


def test_few_patients_are_not_enough_whatever_their_values() -> None:
    rows = np.full((8, 1), 0.5)
    assert moments(rows, 2.6).enough
    assert not moments(rows, 2.7).enough
    assert not moments(rows[:2]).enough


def test_a_variance_within_three_deviations_of_its_noise_does_not_vary() -> None:
    """Columns centred at 0: the noise of a variance is nearly that of Σx², over the number of patients."""
    rows = np.tile([[0.1, 0.9], [-0.1, -0.9]], (50, 1))
    # Variances of .0101 and .82 beside three deviations of .003 and of .005.
    assert moments(rows, 0.3).varies.tolist() == [True, True]
    assert moments(rows, 0.5).varies.tolist() == [False, True]


def test_draws_have_the_noise_of_the_sums_and_the_sampling_of_a_normal_law() -> None:
    """2,000 draws: a deviation is known to 1.6 %, and 10 % is six of these."""
    rows = np.random.default_rng(2).normal(0.1, 0.2, (400, 1))
    found = moments(rows, 3.0)
    draws = found.draws(np.random.default_rng(5))
    assert draws.noise[:, 0, 1] == pytest.approx(draws.noise[:, 1, 0])
    assert draws.noise.std(axis=0) == pytest.approx(np.full((2, 2), 3.0), rel=0.1)
    # The sum of 400 normal values varies by √400 times their deviation.
    deviation = rows.std(ddof=1)
    assert draws.sampling[:, 0, 1].std() == pytest.approx(20 * deviation, rel=0.1)
    variances = covariances(draws.matrix + draws.sampling, 400)[:, 0, 0]
    assert variances.std() == pytest.approx(deviation**2 * np.sqrt(2 / 399), rel=0.1)


def test_centred_squares_have_the_noise_of_their_sum_and_half_of_that_of_the_number_of_patients() -> None:
    """Σx² = third + n/2: its variance is 5/4, and its covariance with the number ½, of the variance of each sum.

    Of 2,000 draws a variance is known to 3.2 % and this covariance to 5.3 %. 20 % and 30 % are over five of these,
    which chance passes once in 10⁶ seeds.
    """
    found = SecondMoments(np.array([[400.0, 40.0], [40.0, 20.0]]), np.full((2, 2), 3.0), 0.5)
    noise = found.draws(np.random.default_rng(5)).noise
    covariance = np.cov(noise[:, [0, 0, 1], [0, 1, 1]].T)
    assert np.diagonal(covariance) == pytest.approx([9, 9, 9 * 5 / 4], rel=0.2)
    assert covariance[0, 2] == pytest.approx(9 / 2, rel=0.3)
    assert covariance[[0, 1], [1, 2]] == pytest.approx([0, 0], abs=1.5)


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_the_noise_of_a_centred_variance_is_the_one_to_first_order(factor: float) -> None:
    """By hand: with third, total, n = t, s, c the variance is t/c + ½ - (s/c)²."""
    matrix, std = np.array([[100.0, 60.0], [60.0, 0.0]]), 1.0
    gradient = np.array([1 / 100, -2 * 0.6 / 100])
    for variance in np.linspace(0.02, 0.2, 10):
        # Σx² = third + 50, and third = 100·(variance + mean² - ½).
        third = 100 * (variance + 0.36 - 0.5)
        by_count = -third / 100**2 + 2 * 60**2 / 100**3
        deviation = std * np.hypot(np.linalg.norm(gradient), by_count)
        matrix[1, 1] = third + 50
        # `varies` compares with the divisor n - 1.
        limit = float(covariances(matrix[None], 100)[0, 0, 0]) / 3 / deviation
        found = SecondMoments(matrix, np.full((2, 2), std * limit * factor), 0.5)
        assert found.varies.tolist() == [factor < 1]


def test_an_estimate_of_normal_noise_has_the_errors_and_the_interval_of_the_normal_law() -> None:
    source = np.random.default_rng(7)
    noise, sampling = source.normal(0, 3, (4000, 1)), source.normal(0, 4, (4000, 1))
    found = simulate_estimates(np.array([10.0]), noise, sampling, lambda sums: 2 * sums)
    assert found.raw.tolist() == [20]
    assert found.dp_error[0] == pytest.approx(6, rel=0.06)
    assert found.sampling_error[0] == pytest.approx(8, rel=0.06)
    assert [found.low[0], found.high[0]] == pytest.approx([20 - 19.6, 20 + 19.6], abs=1.5)


def test_the_nearest_possible_matrix_loses_its_negative_directions_alone() -> None:
    """[[1, 2], [2, 1]] has 3 along (1, 1) and -1 along (1, -1)."""
    assert nearest_possible(np.array([[1.0, 2.0], [2.0, 1.0]])) == pytest.approx(np.full((2, 2), 1.5))
    possible = np.array([[2.0, 1.0], [1.0, 2.0]])
    assert nearest_possible(possible) is possible


def test_another_sample_of_counts_varies_as_poissons_law_does_and_any_sum_can_be_drawn() -> None:
    drawn = resample_counts(np.array([0.0, 100.0, 1e30]), np.random.default_rng(1))
    assert (drawn[:, 0] == 0).all()
    assert drawn[:, 1].mean() == pytest.approx(0, abs=1.2)
    assert drawn[:, 1].std() == pytest.approx(10, rel=0.1)
    assert np.isfinite(drawn).all()
