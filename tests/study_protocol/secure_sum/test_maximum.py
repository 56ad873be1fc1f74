"""Blinded thresholds: always an upper bound, and nothing but one bit per threshold."""

from __future__ import annotations

import math
import os
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from study_protocol.secure_sum.vectors import (
    EncodingError,
    decode_thresholds,
    encode_thresholds,
    geometric_grid,
)

GRID = geometric_grid(1e-6, 1e4, 1024)
VALUES = st.one_of(st.floats(0, 2e4).map(abs), st.just(math.inf), st.sampled_from(GRID))


def test_the_grid_is_correctly_rounded_geometric() -> None:
    mpmath.mp.dps = 50
    for k in (0, 1, 511, 1022, 1023):
        exact = mpmath.mpf(1e-6) * (mpmath.mpf(1e4) / mpmath.mpf(1e-6)) ** (mpmath.mpf(k) / 1023)
        assert GRID[k] == float(exact)
    assert max(b / a for a, b in pairwise(GRID)) < 1.0229


@settings(deadline=None)
@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=1, max_size=8))
def test_the_decoded_maximum_is_the_next_threshold(clients) -> None:
    total = sum(encode_thresholds(np.array(x), GRID, os.urandom) for x in clients)
    bounds = decode_thresholds(total, GRID)
    for column, bound in enumerate(bounds):
        largest = max(x[column] for x in clients)
        assert bound == next((g for g in GRID if largest <= g), math.inf)


def test_a_sum_is_uniform_however_many_exceed() -> None:
    # False alarm 1e-6 for each of two chi-square tests on 256 cells.
    draw = np.random.default_rng(11).bytes
    for clients in (1, 3):
        total = sum(encode_thresholds(np.full(4_000, 5.0), (1.0, 2.0), draw) for _ in range(clients))
        cells = np.bincount(total.view(np.uint8), minlength=256)
        assert stats.chisquare(cells).pvalue > 1e-6


@pytest.mark.parametrize("values", [[math.nan], [-1.0], [-0.0], [[1.0]], [1]])
def test_bad_values_are_refused_by_name(values) -> None:
    with pytest.raises(EncodingError, match="values"):
        encode_thresholds(np.array(values), GRID, os.urandom)


@pytest.mark.parametrize(
    ("low", "high", "count"),
    [(0.0, 1.0, 4), (1.0, 1.0, 4), (2.0, 1.0, 4), (1.0, math.inf, 4), (math.nan, 1.0, 4), (1.0, 2.0, 1)],
)
def test_bad_grids_are_refused(low, high, count) -> None:
    with pytest.raises(EncodingError, match="grid"):
        geometric_grid(low, high, count)


def test_thresholds_that_float64_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(EncodingError, match="count"):
        geometric_grid(1.0, math.nextafter(1.0, 2), 8)
