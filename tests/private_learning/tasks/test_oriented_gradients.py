"""Histograms of edge directions: pixel by pixel in numpy, and what an edge of a known direction gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from private_learning.tasks.oriented_gradients import DIRECTIONS, OrientedGradients


def filtered(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Cross-correlation with zeros around."""
    side = kernel.shape[0] // 2
    padded = np.pad(image, side)
    out = np.zeros_like(image)
    for row in range(image.shape[0]):
        for column in range(image.shape[1]):
            out[row, column] = (padded[row : row + 2 * side + 1, column : column + 2 * side + 1] * kernel).sum()
    return out


def features_of(image: np.ndarray) -> np.ndarray:
    """(directions, height/4, width/4) before they are scaled to length 1."""
    line = np.array([1, 4, 6, 4, 1]) / 16
    sobel = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]]) / 4
    smooth = filtered(image / 255, np.outer(line, line))
    across, down = filtered(smooth, sobel), filtered(smooth, sobel.T)
    out = np.zeros((DIRECTIONS, image.shape[0] // 4, image.shape[1] // 4))
    for k in range(DIRECTIONS):
        angle = 2 * np.pi * k / DIRECTIONS
        energy = np.pad(np.maximum(0, across * np.cos(angle) + down * np.sin(angle)), 1)
        for row in range(out.shape[1]):
            for column in range(out.shape[2]):
                out[k, row, column] = np.sqrt(energy[4 * row : 4 * row + 6, 4 * column : 4 * column + 6].mean())
    return out


def test_features_are_those_of_sums_over_single_pixels() -> None:
    images = np.random.default_rng(1).integers(0, 256, (2, 8, 12)).astype(float)
    found = OrientedGradients()(torch.tensor(images)[:, None]).numpy()
    for row, image in enumerate(images):
        expected = features_of(image).ravel()
        np.testing.assert_allclose(found[row], expected / np.linalg.norm(expected), atol=1e-5)


def test_every_image_has_length_one_and_one_without_an_edge_is_zero() -> None:
    images = torch.cat([torch.randint(0, 256, (3, 1, 8, 8)), torch.zeros(1, 1, 8, 8, dtype=torch.int64)])
    found = OrientedGradients()(images)
    assert found.shape == (4, DIRECTIONS * 2 * 2)
    assert found.norm(dim=1).tolist() == pytest.approx([1, 1, 1, 0], abs=1e-6)


def test_an_image_is_mapped_by_itself() -> None:
    images = torch.randint(0, 256, (5, 1, 8, 8), generator=torch.Generator().manual_seed(2))
    module = OrientedGradients()
    torch.testing.assert_close(module(images)[3:4], module(images[3:4]))


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 3, 8, 8), (2, 1, 8, 10), (2, 1, 6, 8)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="4a, 4b"):
        OrientedGradients()(torch.zeros(shape))
