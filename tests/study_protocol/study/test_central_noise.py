from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.mechanisms.unsampled import GRID_STD
from server.domain.admission import CentralNoise

norms = st.floats(1e-6, 1e6)
multipliers = st.floats(1e-2, 100)
sizes = st.integers(1, 10**9)


@given(clip_norm=norms, multiplier=multipliers, coordinates=sizes)
@example(clip_norm=1.0, multiplier=1.0, coordinates=1)
@example(clip_norm=1.9, multiplier=0.3, coordinates=8)
def test_the_noise_covers_what_one_client_can_move(clip_norm: float, multiplier: float, coordinates: int) -> None:
    noise = CentralNoise(clip_norm, multiplier, coordinates)
    spacing = Fraction(noise.spacing)
    # In exact arithmetic: rounding moves every coordinate by at most half a step.
    rounding_squared = spacing**2 * coordinates / 4
    assert Fraction(noise.rounding) ** 2 >= rounding_squared
    assert Fraction(noise.sensitivity) >= Fraction(clip_norm) * (1 + Fraction(10) ** -6) + Fraction(noise.rounding)
    assert Fraction(noise.std) >= Fraction(multiplier) * Fraction(noise.sensitivity)
    # What the accounts count on, however few the coordinates and however small the noise.
    assert noise.units >= GRID_STD
    # The price of the grid: a fifteen-thousandth of the clip norm at most.
    assert noise.sensitivity <= clip_norm * (1 + 2e-6 + 2.0**-15)


@given(clip_norm=norms, multiplier=multipliers, coordinates=sizes, fraction=st.floats(0, 1))
def test_the_distance_that_is_accounted_is_never_too_small(
    clip_norm: float, multiplier: float, coordinates: int, fraction: float
) -> None:
    noise = CentralNoise(clip_norm, multiplier, coordinates)
    # Up to the tolerance that admission allows.
    norm = fraction * clip_norm * (1 + 1e-6)
    moved = (Fraction(norm) + Fraction(noise.rounding)) / Fraction(noise.std)
    accounted = Fraction(noise.accounted_distance(norm)) / (Fraction(multiplier) * Fraction(clip_norm))
    assert accounted >= moved
    assert noise.accounted_distance(norm) <= clip_norm


def test_the_clip_is_kept_within_its_tolerance_only() -> None:
    noise = CentralNoise(2.0, 1.0, 10)
    assert noise.admits(2.0)
    assert noise.admits(2.0 * (1 + 1e-6))
    assert not noise.admits(2.0 * (1 + 1e-5))
    assert not noise.admits(math.nan)
    assert not noise.admits(math.inf)


@pytest.mark.parametrize("coordinates", [1, 10, 12345])
def test_rounding_stays_within_its_bound(coordinates: int) -> None:
    noise = CentralNoise(1.0, 1.0, coordinates)
    vector = np.random.default_rng(7).normal(size=coordinates)
    moved = np.rint(vector / noise.spacing) * noise.spacing - vector
    assert float(np.linalg.norm(moved)) <= noise.rounding


@pytest.mark.parametrize(("clip_norm", "noise"), [(1.0, 5e-324), (1e-6, 1e-322), (1e200, 1.0)])
def test_a_noise_beside_which_no_grid_is_a_float_is_named(clip_norm: float, noise: float) -> None:
    assert "is beyond any grid" in (CentralNoise(clip_norm, noise, 1).fault or "")
