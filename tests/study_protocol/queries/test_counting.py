"""Counts and shares with their intervals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq

from study_protocol.queries.counting import (
    NORMAL,
    blank_unsure,
    counts,
    ends_within,
    estimate_tables,
    join_estimates,
    on_simplex,
    shares_of,
    split,
    unknown_estimates,
)


def test_an_interval_beyond_what_is_possible_keeps_its_reach() -> None:
    raw, low, high = np.array([1.3, -0.2, 0.5]), np.array([1.1, -0.5, 0.4]), np.array([1.6, -0.1, 0.6])
    least_end, most_end = ends_within(raw, low, high, 0.0, 1.0)
    assert least_end == pytest.approx([0.8, 0.0, 0.4])
    assert most_end == pytest.approx([1.0, 0.1, 0.6])


@pytest.mark.parametrize(("raw", "variance"), [(50.0, 0.0), (50.0, 16.0), (3.0, 100.0), (-1.0, 4.0)])
def test_ends_of_a_count_are_as_far_away_as_its_noise_and_sampling_allow(raw: float, variance: float) -> None:
    """Both ends λ solve |raw - λ| = 1.96 √(λ + variance), as bisection finds them."""
    found = counts(np.array([raw]), np.array([variance]))

    def beyond(number: float) -> float:
        return abs(raw - number) - NORMAL * math.sqrt(max(number + variance, 0.0))

    high = brentq(beyond, max(raw, 0.0), 1e4)
    assert found.high[0] == pytest.approx(high)
    low = brentq(beyond, 0.0, raw) if raw > 0 and beyond(0.0) > 0 else 0.0
    assert found.low[0] == pytest.approx(low, abs=1e-12)
    assert found.estimate[0] == max(raw, 0.0)
    assert found.dp_error[0] == math.sqrt(variance)


def test_the_nearest_counts_that_add_up_are_those_of_a_search_over_all_supports() -> None:
    source = np.random.default_rng(3)
    for _ in range(50):
        values, total = source.normal(1, 4, 4), float(source.uniform(0, 10))
        best = math.inf
        for kept in itertools.product((False, True), repeat=4):
            if any(kept):
                candidate = np.where(kept, values - (values[list(kept)].sum() - total) / sum(kept), 0.0)
                if candidate.min() >= 0:
                    best = min(best, float(((candidate - values) ** 2).sum()))
        found = on_simplex(values, total)
        assert found.sum() == pytest.approx(total)
        assert found.min() >= 0
        assert ((found - values) ** 2).sum() == pytest.approx(best)


def test_cells_of_several_tables_are_those_of_least_squares() -> None:
    """Of numpy: the unknown are one number of patients and all cells of each table but its last."""
    tables, std = [np.array([30.0, 22.0]), np.array([18.0, 20.0, 19.0])], 2.0
    design = np.zeros((5, 4))
    for first, last, parameters in ((0, 1, [1]), (2, 4, [2, 3])):
        design[range(first, last), parameters] = 1
        design[last, 0] = 1
        design[last, parameters] = -1
    fitted = np.linalg.lstsq(design, np.concatenate(tables), rcond=None)[0]
    covariance = std**2 * np.linalg.inv(design.T @ design)
    found = estimate_tables(tables, std)
    assert found.patients.raw == pytest.approx(fitted[:1])
    assert found.patients.dp_error == pytest.approx(np.sqrt(covariance[:1, 0]))
    assert np.concatenate([cells.raw for cells in found.cells]) == pytest.approx(design @ fitted)
    errors = np.sqrt(np.diagonal(design @ covariance @ design.T))
    assert np.concatenate([cells.dp_error for cells in found.cells]) == pytest.approx(errors)
    for share in found.shares:
        assert share.estimate.sum() == pytest.approx(1)


def test_a_share_of_a_known_total_has_the_interval_of_wilson() -> None:
    """Without noise, as `statsmodels` and Wilson 1927 have it for 40 of 200."""
    share, size, square = 0.2, 200.0, NORMAL**2
    centre = (share + square / (2 * size)) / (1 + square / size)
    half = NORMAL / (1 + square / size) * math.sqrt(share * (1 - share) / size + square / (4 * size**2))
    found = shares_of(np.array([40.0]), np.array([40.0]), size, 0.0, 0.0, 0.0)
    assert [found.low[0], found.high[0]] == pytest.approx([centre - half, centre + half])
    assert found.sampling_error[0] == pytest.approx(math.sqrt(share * (1 - share) / size))


@pytest.mark.parametrize(("total", "of_total"), [(0.0, 1.0), (-5.0, 0.0), (2.9, 1.0)])
def test_a_total_that_does_not_stand_out_has_no_shares(total: float, of_total: float) -> None:
    found = shares_of(np.array([1.0, 2.0]), np.array([1.0, 2.0]), total, 1.0, 0.5, of_total)
    assert np.isnan(found.estimate).all()
    assert (found.low.tolist(), found.high.tolist()) == ([0, 0], [1, 1])


def test_parts_that_are_joined_can_be_split_again_and_blanked() -> None:
    whole = join_estimates([counts(np.array([4.0, 9.0]), np.zeros(2)), unknown_estimates(1)])
    first, last = split(whole, [2])
    assert first.raw.tolist() == [4, 9]
    assert np.isnan(last.high).all()
    blank = blank_unsure(np.array([True, False]), first, np.zeros(2), np.full(2, 10.0))
    assert blank.estimate[0] == 4
    assert np.isnan([blank.estimate[1], blank.dp_error[1]]).all()
    assert (blank.low[1], blank.high[1]) == (0, 10)
