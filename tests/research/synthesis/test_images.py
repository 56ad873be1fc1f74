"""Released moments of images: the clip, the sums without noise, ε against the closed form, and drawn images."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from research.synthesis.images import (
    DELTA,
    SIDE,
    MomentSettings,
    cosine_basis,
    drawn,
    epsilon,
    normals,
    released,
)

WEIGHTS = (0.02, 0.18, 0.8)
DRAW = np.random.default_rng(3)


def _points(count: int, kept: int) -> np.ndarray:
    raw = DRAW.normal(size=(count, kept))
    return raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1.0)


def test_sums_are_those_of_the_records_up_to_the_noise() -> None:
    points, labels = _points(400, 5), DRAW.integers(0, 3, 400)
    found = released(points, labels, WEIGHTS, 1e-6, 1)
    for place in range(3):
        own = points[labels == place]
        products = np.triu(own.T @ own)[np.triu_indices(5)]
        expected = np.concatenate([[len(own)], own.sum(axis=0), products])
        np.testing.assert_allclose(found[place], expected, atol=1e-3)


def test_no_record_moves_the_weighted_sum_by_more_than_one() -> None:
    points, labels = _points(30, 6), DRAW.integers(0, 2, 30)
    labels[:2] = 0, 1
    rows, columns = np.triu_indices(6)
    scale = np.sqrt(np.repeat(WEIGHTS, [1, 6, len(rows)]))
    scale[7:] *= np.where(rows == columns, 1, math.sqrt(2))
    whole = released(points, labels, WEIGHTS, 1e-6, 1)
    for place in range(2, 30):
        rest = np.delete(points, place, axis=0), np.delete(labels, place)
        moved = (whole - released(*rest, WEIGHTS, 1e-6, 1)) * scale
        assert np.linalg.norm(moved) <= 1 + 1e-3


@pytest.mark.parametrize("multiplier", [2.0, 3.73])
def test_epsilon_is_the_gaussian_mechanisms(multiplier: float) -> None:
    def excess(value: float) -> float:
        near, far = 1 / (2 * multiplier) - value * multiplier, -1 / (2 * multiplier) - value * multiplier
        return float(norm.cdf(near) - math.exp(value) * norm.cdf(far)) - DELTA

    assert epsilon(multiplier) == pytest.approx(brentq(excess, 0.01, 20), rel=1e-3)


def test_cosines_are_orthonormal_and_images_come_back() -> None:
    basis = cosine_basis(SIDE**2)
    np.testing.assert_allclose(basis.directions @ basis.directions.T, np.eye(SIDE**2), atol=1e-9)
    images = DRAW.uniform(0.2, 0.8, (3, SIDE**2))
    np.testing.assert_allclose(basis.images(basis.coordinates(images, 20.0), 20.0), images, atol=1e-9)


def test_drawn_coordinates_have_the_released_moments() -> None:
    points, labels = _points(4000, 3), np.repeat([0, 0, 0, 1], 1000)
    settings = MomentSettings(3, 1.0, WEIGHTS, 0.0, 1e-9)
    classes = normals(released(points, labels, WEIGHTS, 1e-6, 1), settings)
    made, chosen = drawn(classes, 40_000, 1)
    assert (chosen == 0).mean() == pytest.approx(0.75, abs=0.01)
    own = points[labels == 1]
    np.testing.assert_allclose(made[chosen == 1].mean(axis=0), own.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(np.cov(made[chosen == 1].T), np.cov(own.T), atol=0.03)
