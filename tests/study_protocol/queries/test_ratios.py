"""What is divided by noise: narrow intervals hold the truth as often as wide ones, 60 patients included.

Coverage of 95 % intervals over runs of fixed seeds. Of n runs a right interval covers less than .95 − 3.1·√(.0475/n)
once in 10³: with the 12 judgements below a right implementation would fail once in 80 choices of the seeds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from study_protocol.queries import second_moments
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.ratios import Quadratic, of_share, ratios
from tests.factories.questions import column, question

Floats = NDArray[np.float64]
X, Y, Z = ({"column": name, "low": -width, "high": width} for name, width in (("x", 4), ("y", 8), ("z", 4)))
CORRELATION = {"kind": "covariance", "numbers": [X, Y]}
REGRESSION = {"kind": "linear-regression", "predictors": [X, Z], "outcome": Y}
RUNS = 300


@pytest.fixture(autouse=True)
def _fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_moments, "SIMULATIONS", 500)


def ends(document: dict[str, Any], table: str, patients: int, deviation: float, std: float) -> tuple[Floats, ...]:
    """(runs,) estimates and ends of the first row: y = 1.5 x − 0.5 z + noise of 1."""
    asked, source = question(document), np.random.default_rng(7)
    spacing = asked.grid().spacing
    found: list[list[float]] = []
    for run in range(RUNS):
        x, z = source.normal(0.5, deviation, (2, patients))
        drawn = {"x": x, "z": z, "y": 1.5 * x - 0.5 * z + source.normal(0, 1, patients)}
        total = asked.total(drawn, spacing) * spacing + source.normal(0, std, asked.cells)
        answer = asked.answer(NoisedSum(total, std, run))
        found.append([float(column(answer, table, name)[0]) for name in ("estimate", "low", "high")])
    return tuple(np.array(found).T)


def least(runs: int) -> float:
    return 0.95 - 3.1 * math.sqrt(0.95 * 0.05 / runs)


def judge(low: Floats, high: Floats, truth: float, narrower: float) -> None:
    narrow = (high - low) < narrower
    if narrow.any():
        assert ((low <= truth) & (truth <= high))[narrow].mean() >= least(int(narrow.sum()))


@pytest.mark.quick("1.0-2.0")
@pytest.mark.parametrize(("deviation", "std"), [(0.3, 0.5), (1.0, 0.3), (1.0, 2.0)])
def test_narrow_correlations_of_60_patients_hold_the_truth(deviation: float, std: float) -> None:
    variance = 2.5 * deviation**2 + 1
    truth = 1.5 * deviation / math.sqrt(variance)
    estimate, low, high = ends(CORRELATION, "correlation", 60, deviation, std)
    judge(low, high, truth, 2.0)
    judge(low, high, truth, 1.0)
    unknown = np.isnan(estimate)
    assert (low[unknown] == -1).all()
    assert (high[unknown] == 1).all()
    # Nothing is said to be sure to the last digit.
    assert (high - low > 0.05).all()


@pytest.mark.slow
@pytest.mark.parametrize(("deviation", "std"), [(0.3, 0.5), (1.0, 0.3)])
def test_narrow_shares_of_variance_hold_the_truth(deviation: float, std: float) -> None:
    truth = 2.5 * deviation**2 / (2.5 * deviation**2 + 1)
    estimate, low, high = ends(REGRESSION, "r-squared", 60, deviation, std)
    judge(low, high, truth, 0.999)
    unknown = np.isnan(estimate)
    assert (low[unknown] == 0).all()
    assert (high[unknown] == 1).all()


@pytest.mark.slow
def test_slopes_along_which_the_noise_is_as_large_as_the_data_have_no_ends() -> None:
    _, low, high = ends(REGRESSION, "coefficients", 60, 0.3, 2.0)
    assert np.isnan(low).all()
    assert np.isnan(high).all()


@pytest.mark.slow
def test_with_many_patients_nothing_is_withheld() -> None:
    estimate, low, high = ends(CORRELATION, "correlation", 2000, 1.0, 1.0)
    assert not np.isnan(estimate).any()
    assert ((high - low) < 0.5).all()


def test_a_mean_of_patients_who_hardly_differ_is_no_surer_than_its_sampling() -> None:
    _, low, high = ends(CORRELATION, "mean", 60, 0.3, 0.3)
    judge(low, high, 0.5, 0.15)


def test_a_ratio_whose_denominator_is_within_three_deviations_says_nothing() -> None:
    denominator = np.array([2.9, 3.1, -5.0])
    noise = Quadratic(np.ones(3), np.zeros(3), np.ones(3))
    found = ratios(np.array([1.0, 1.0, 1.0]), denominator, noise, of_share(np.zeros(3)))
    assert np.isnan(found.estimate).tolist() == [True, False, True]
    assert found.low[[0, 2]].tolist() == [0, 0]
    assert found.high[[0, 2]].tolist() == [1, 1]
