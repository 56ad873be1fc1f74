"""An update's clip, its grid and the law of its noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from study_protocol.randomness.source import SeededSource
from wardround.flower.update_noise import UpdateNoise, clipped, noised_arrays

SEED = 11


def source(seed: int = SEED) -> SeededSource:
    return SeededSource(seed, allow_insecure=True)


@pytest.mark.parametrize("scale", [1e-320, 1e-9, 0.5, 1.0, 3.0, 1e9, 1e200, 1e308])
def test_a_clipped_update_is_never_longer_than_the_clip_norm(scale: float) -> None:
    update = np.random.default_rng(SEED).uniform(-1, 1, 10_000) * scale
    kept = clipped(update, 1.5)
    # By exact sums, in units that do not overflow.
    norm = math.sqrt(math.fsum((kept / 1.5) ** 2))
    assert norm <= 1.0
    if scale >= 1:
        assert norm > 1 - 1e-8
        np.testing.assert_allclose(kept / np.abs(kept).max(), update / np.abs(update).max(), rtol=1e-12)


def test_a_short_update_stays_as_it_is() -> None:
    update = np.array([0.25, -0.5, 0.0])
    np.testing.assert_allclose(clipped(update, 1.0), update, rtol=1e-15)
    assert not clipped(np.zeros(4), 1.0).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_zero(bad: float) -> None:
    assert not clipped(np.array([1.0, bad, 2.0]), 1.0).any()


@pytest.mark.parametrize(("clip_norm", "noise"), [(1.0, 1.0), (0.1, 8.0), (300.0, 0.3)])
def test_the_noise_covers_the_clip_norm_and_the_rounding(clip_norm: float, noise: float) -> None:
    size = 5_000
    law = UpdateNoise.calibrated(clip_norm, size, noise)
    assert math.frexp(law.spacing)[0] == 0.5
    # Two updates, one of them 0, lie at most so far apart after the rounding.
    worst = clip_norm + law.spacing / 2 * math.sqrt(size)
    assert law.sensitivity > worst
    assert law.std >= noise * law.sensitivity
    # At most 2 · 2⁻²² · √n more noise than without a grid.
    assert law.std < noise * clip_norm * (1 + 2**-20 * math.sqrt(size) * noise)


def test_the_noise_is_gaussian_with_the_stated_deviation_and_on_the_grid() -> None:
    """False alarms: below 2e-6 by Bonferroni over the two tests, for a fixed seed either never or always."""
    size = 200_000
    law = UpdateNoise.calibrated(1.0, size, 2.0)
    noised = law.add_to(np.zeros(size), source())
    assert not np.mod(noised, law.spacing).any()
    # (n − 1)s²/σ² is χ² with n − 1 degrees of freedom.
    ratio = float(np.sum(noised**2)) / law.std**2
    assert stats.chi2.ppf(5e-7, size) < ratio < stats.chi2.ppf(1 - 5e-7, size)
    assert stats.kstest(noised / law.std, "norm").pvalue > 1e-6


def test_noise_on_a_clipped_update_is_centred_on_it() -> None:
    """False alarms: 1e-6, two-sided, of the mean along the update's direction."""
    size = 100_000
    update = np.full(size, 5.0)
    law = UpdateNoise.calibrated(1.0, size, 2.0)
    along = float(law.add_to(update, source(3)) @ np.full(size, 1 / math.sqrt(size)))
    assert abs(along - 1.0) < law.std * stats.norm.isf(5e-7)


def test_arrays_keep_their_names_shapes_and_types() -> None:
    draws = np.random.default_rng(SEED)
    before = {"a": draws.normal(size=(3, 2)).astype(np.float32), "b": draws.normal(size=()), "c": np.zeros((0, 4))}
    after = {name: values + 1 for name, values in before.items()}
    law = UpdateNoise.calibrated(1.0, 7, 1e-3)
    moved = noised_arrays(before, after, law, source())
    assert {name: (v.shape, v.dtype) for name, v in moved.items()} == {n: (v.shape, v.dtype) for n, v in before.items()}
    # The update is 1 in seven places, clipped to length 1. The noise is small here.
    for name, values in before.items():
        np.testing.assert_allclose(moved[name] - values, 1 / math.sqrt(7), atol=0.02)


def test_two_draws_differ() -> None:
    law, update = UpdateNoise.calibrated(1.0, 50, 1.0), np.zeros(50)
    stream = source()
    assert (law.add_to(update, stream) != law.add_to(update, stream)).any()
