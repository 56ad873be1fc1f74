"""From the sums at 0 to those at the outcome's mean: the same as summed there."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.regression.estimates import ReleasedSums
from study_protocol.queries.regression.families import FamilyName, parts
from study_protocol.queries.regression.start import at_level


def sums_at(
    family: FamilyName, rows: np.ndarray, outcome: np.ndarray, predictor: np.ndarray, high: float
) -> ReleasedSums:
    residuals, curvatures = parts(family, outcome, predictor, high)
    everywhere = np.ones((rows.shape[1],) * 2, bool)
    information = (rows * curvatures[:, None]).T @ rows
    return ReleasedSums(rows.T @ residuals, information, 1e-9, 1e-9, everywhere, rows.shape[1] - 1)


@pytest.mark.parametrize(("family", "high"), [("logistic", 1.0), ("poisson", 3.0)])
@pytest.mark.parametrize("rate", [0.04, 0.6])
def test_sums_are_moved_to_the_intercept_alone(family: FamilyName, high: float, rate: float) -> None:
    generator = np.random.default_rng(2)
    rows = np.column_stack([generator.standard_normal((500, 2)), np.ones(500)])
    outcome = (generator.random(500) < rate).astype(float)
    start = sums_at(family, rows, outcome, np.zeros(500), high)
    moved, level = at_level(family, start, high, is_at_zero=True)
    there = sums_at(family, rows, outcome, np.full(500, level), high)
    assert moved.gradient == pytest.approx(there.gradient, abs=1e-7)
    assert moved.information == pytest.approx(there.information, abs=1e-7)
    # There the intercept's equation is solved.
    assert float(moved.gradient[-1]) == pytest.approx(0.0, abs=1e-7)


def test_counts_with_an_offset_are_moved_too_up_to_the_clip() -> None:
    generator = np.random.default_rng(3)
    rows = np.column_stack([generator.standard_normal((500, 2)), np.ones(500)])
    offset, outcome = generator.uniform(-1, 1, 500), generator.poisson(0.5, 500).astype(float)
    moved, level = at_level("poisson", sums_at("poisson", rows, outcome, offset, 50.0), 50.0, is_at_zero=False)
    there = sums_at("poisson", rows, outcome, offset + level, 50.0)
    assert moved.gradient == pytest.approx(there.gradient, abs=1e-6)
    assert moved.information == pytest.approx(there.information, abs=1e-6)


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_an_outcome_that_never_varies_has_a_finite_start(outcome: float) -> None:
    rows = np.ones((100, 2))
    start = sums_at("logistic", rows, np.full(100, outcome), np.zeros(100), 1.0)
    _, level = at_level("logistic", start, 1.0, is_at_zero=True)
    assert 6 < abs(level) < 8


def test_without_patients_nothing_is_moved() -> None:
    rows = np.zeros((1, 2))
    start = sums_at("logistic", rows, np.zeros(1), np.zeros(1), 1.0)
    assert at_level("logistic", start, 1.0, is_at_zero=True) == (start, 0.0)
