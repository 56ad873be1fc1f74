"""Scattering, invented handwriting and the discriminant are what they say; nothing of them knows a private record."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from research.tables.discriminant import fit, unit
from research.tables.scattering import CHANNELS, DIRECTIONS, PLACES, _wavelets, scattering
from research.tables.strokes import handwriting

DRAW = np.random.default_rng(4)
GLYPHS, COPIES = 60, 12
IMAGES, WHICH = handwriting(GLYPHS, COPIES, seed=3)


def test_a_wavelet_is_the_closed_form_of_its_fourier_transform() -> None:
    # Of scale 1, wide enough for 32 pixels to sample it well and narrow enough to end within them.
    spread, frequency, slant = 1.6, 3 * np.pi / 8, 0.5
    places = np.fft.fftfreq(32) * 2 * np.pi
    first, second = np.meshgrid(places, places, indexing="ij")
    for number in range(DIRECTIONS):
        angle = (DIRECTIONS // 2 - 1 - number) * np.pi / DIRECTIONS

        def envelope(u: np.ndarray, v: np.ndarray, angle: float = angle) -> np.ndarray:
            along, across = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
            return np.exp(-(spread**2) * (along**2 + across**2 / slant**2) / 2)

        wave = envelope(first - frequency * np.cos(angle), second - frequency * np.sin(angle))
        still = envelope(first, second)
        expected = wave - wave[0, 0] / still[0, 0] * still
        assert np.abs(_wavelets(1)[number].numpy() - expected).max() < 0.02


def test_a_map_of_a_blank_image_is_blank_and_a_brighter_one_is_larger() -> None:
    blank = np.zeros((1, 28, 28), np.uint8)
    faint, bright = (np.pad(np.full((1, 8, 8), level, np.uint8), ((0, 0), (10, 10), (10, 10))) for level in (50, 200))
    assert not scattering(blank).any()
    assert scattering(blank).shape == (1, CHANNELS * PLACES**2)
    # Moduli grow in proportion, their roots by half of that.
    np.testing.assert_allclose(scattering(bright), 2 * scattering(faint), rtol=1e-3, atol=1e-4)


def test_an_image_is_mapped_by_itself() -> None:
    np.testing.assert_allclose(scattering(IMAGES[:40])[7], scattering(IMAGES[7:8])[0], atol=1e-5)


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        scattering(np.zeros((2, 32, 32), np.uint8))


def test_handwriting_is_centred_repeatable_and_alike_within_a_glyph() -> None:
    again, _ = handwriting(GLYPHS, COPIES, seed=3)
    np.testing.assert_array_equal(IMAGES, again)
    weight = IMAGES.astype(float)
    middle = (weight * np.arange(28)[:, None]).sum(axis=(1, 2)) / weight.sum(axis=(1, 2))
    # Where ink runs over, black stays black: the middle of a heavy stroke weighs less than its ink.
    assert np.abs(middle - 13.5).max() < 2
    assert np.abs(middle - 13.5).mean() < 0.3
    rows = unit(scattering(IMAGES[: 4 * GLYPHS]))
    which = WHICH[: 4 * GLYPHS]
    near, same = rows @ rows.T, which[:, None] == which
    assert near[same & ~np.eye(len(which), dtype=bool)].mean() > near[~same].mean() + 0.02


def test_the_discriminant_is_fishers() -> None:
    groups = np.tile(np.arange(8), 50)
    features = (DRAW.normal(size=(8, 6))[groups] + DRAW.normal(size=(400, 6)) @ DRAW.normal(size=(6, 6))).astype(
        np.float32
    )
    features = unit(features)
    ours = fit(features, groups, 3, shrinkage=1e-9)(features)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(features, groups).transform(features)[:, :3]
    for place in range(3):
        assert abs(np.corrcoef(ours[:, place], theirs[:, place])[0, 1]) > 0.9999
    within = ours - np.stack([ours[groups == g].mean(axis=0) for g in range(8)])[groups]
    np.testing.assert_allclose(within.T @ within / len(within), np.eye(3), atol=1e-3)


def test_more_directions_than_glyphs_separate_are_refused() -> None:
    with pytest.raises(ValueError, match="separate fewer"):
        fit(DRAW.normal(size=(40, 6)).astype(np.float32), np.tile(np.arange(4), 10), 4, 0.1)
