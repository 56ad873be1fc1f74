"""The tabulated path against the exact one, and the convexity it rests on."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import log_moment
from accounting.mechanisms.table import tabulated

ORDERS = np.array([0.1, 1.0, 2.5, 8.0, 31.4, 64.0])


@pytest.mark.parametrize(("std", "rate"), [(1.1, 0.01), (0.5, 0.2), (4.0, 0.9), (1.0, 1.0), (0.3, 1e-4)])
def test_never_below_the_exact_path_and_close_above(std: float, rate: float) -> None:
    distances = np.concatenate([np.random.default_rng(0).beta(0.3, 2.0, 400), [0.0, 1e-12, 1.0]])
    exact = log_moment(ORDERS, distances, noise_std=std, sampling_rate=rate, method="exact")
    table = log_moment(ORDERS, distances, noise_std=std, sampling_rate=rate, method="table")
    assert (table >= exact).all()
    assert (table <= exact * 1.01).all()


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.7])
def test_cost_is_convex_in_the_squared_distance_at_integer_and_real_orders(rate: float) -> None:
    squares = np.linspace(0, 4, 200)
    values = log_moment(ORDERS, np.sqrt(squares), noise_std=1.0, sampling_rate=rate, method="exact")
    # A second difference below zero by more than the inflation of 1e-9 would break the chords.
    assert (np.diff(values, n=2, axis=1) >= -4e-9 * values[:, 1:-1]).all()


def test_many_records_take_the_table_and_few_the_exact_path() -> None:
    distances = np.random.default_rng(1).uniform(0, 1, 8193)
    table = tabulated(np.array([4.0]), distances / 1.3, 0.1)
    assert log_moment([4.0], distances, noise_std=1.3, sampling_rate=0.1).tolist() == table.tolist()
    exact = log_moment([4.0], distances[:8192], noise_std=1.3, sampling_rate=0.1, method="exact")
    assert log_moment([4.0], distances[:8192], noise_std=1.3, sampling_rate=0.1).tolist() == exact.tolist()


def test_infinite_costs_stay_infinite() -> None:
    distances = np.concatenate([np.full(5, 1e-3), [1e160]])
    found = log_moment(2, distances, noise_std=1.0, sampling_rate=0.1, method="table")
    assert found[-1] == np.inf
    assert np.isfinite(found[:-1]).all()
