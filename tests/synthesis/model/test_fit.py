"""Estimates of crossed tables against scipy's optimum, and the margins that they keep."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from synthesis.model.fit import Crossed, fitted


def _crossed(counts: np.ndarray, truth: np.ndarray, std: float, expected: np.ndarray | None = None) -> Crossed:
    """One table and one outcome, with the true margins."""
    return Crossed(
        counts[None, :, :, None],
        (np.zeros_like(counts) if expected is None else expected)[None, :, :, None],
        truth.sum(axis=1)[None, :, None],
        truth.sum(axis=0)[None, :, None],
        np.array([float(len(counts))]),
        np.array([float(counts.shape[1])]),
        np.array([std]),
    )


@pytest.mark.parametrize("seed", range(4))
def test_margins_are_kept_and_no_count_is_negative(seed: int) -> None:
    source = np.random.default_rng(seed)
    truth = source.gamma(0.5, 100, (6, 4))
    found = fitted(_crossed(truth + source.normal(0, 40, truth.shape), truth, 40.0))[0, :, :, 0]
    assert found.min() >= 0
    assert found.sum(axis=1) == pytest.approx(truth.sum(axis=1), rel=1e-3)
    assert found.sum(axis=0) == pytest.approx(truth.sum(axis=0), rel=1e-9)


def test_without_noise_the_estimate_is_the_table() -> None:
    truth = np.array([[10.0, 200.0, 0.0], [300.0, 5.0, 50.0]])
    found = fitted(_crossed(truth, truth, 1e-6))[0, :, :, 0]
    assert found == pytest.approx(truth, abs=0.01)


def test_with_noise_alone_the_estimate_is_independence() -> None:
    truth = np.outer([100.0, 300.0, 200.0], [0.2, 0.5, 0.3])
    source = np.random.default_rng(0)
    found = fitted(_crossed(truth + source.normal(0, 1e5, truth.shape), truth, 1e6))[0, :, :, 0]
    assert found == pytest.approx(truth, rel=0.02)


def test_with_little_noise_it_is_the_nearest_table_with_the_margins() -> None:
    source = np.random.default_rng(2)
    truth = source.gamma(0.7, 2000, (3, 4))
    counts = truth + source.normal(0, 300, truth.shape)
    found = fitted(_crossed(counts, truth, 1e-3))[0, :, :, 0]
    rows = [{"type": "eq", "fun": lambda x, i=i: x.reshape(3, 4)[i].sum() - truth[i].sum()} for i in range(3)]
    columns = [{"type": "eq", "fun": lambda x, j=j: x.reshape(3, 4)[:, j].sum() - truth[:, j].sum()} for j in range(3)]
    best = minimize(
        lambda x: ((x - counts.ravel()) ** 2).sum() / 1e6,
        truth.ravel(),
        bounds=[(0, None)] * 12,
        constraints=[*rows, *columns],
        options={"ftol": 1e-12, "maxiter": 500},
    ).x.reshape(3, 4)
    assert found == pytest.approx(best, abs=0.02 * truth.sum() / truth.size)


def test_shrinkage_is_nearer_to_the_truth_than_the_noised_counts() -> None:
    source, before, after = np.random.default_rng(5), 0.0, 0.0
    for _ in range(20):
        truth = source.gamma(2, 50, (8, 8))
        counts = truth + source.normal(0, 50, truth.shape)
        before += np.abs(counts - truth).sum()
        after += np.abs(fitted(_crossed(counts, truth, 50.0))[0, :, :, 0] - truth).sum()
    assert after < 0.7 * before


def test_padding_does_not_change_a_table() -> None:
    source = np.random.default_rng(6)
    truth = source.gamma(1, 100, (3, 2))
    counts = truth + source.normal(0, 20, truth.shape)
    alone = fitted(_crossed(counts, truth, 20.0))[0, :, :, 0]
    wide = np.zeros((5, 4))
    wide[:3, :2] = counts
    rows, columns = np.zeros((1, 5, 1)), np.zeros((1, 4, 1))
    rows[0, :3, 0], columns[0, :2, 0] = truth.sum(axis=1), truth.sum(axis=0)
    padded = Crossed(
        wide[None, :, :, None],
        np.zeros((1, 5, 4, 1)),
        rows,
        columns,
        np.array([3.0]),
        np.array([2.0]),
        np.array([20.0]),
    )
    found = fitted(padded)[0, :, :, 0]
    assert found[:3, :2] == pytest.approx(alone, rel=1e-12)
    assert found.sum() == pytest.approx(found[:3, :2].sum(), rel=1e-12)
