"""Calibration slope and calibration in the large: no patient moves the sums too far, and what is right has 1."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom

from research.monitoring import power, uneven
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.evaluation.calibration import IN_THE_LARGE, SLOPE, Recalibration
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION
from tests.factories.questions import exact, question

ENDS = (0.0, 0.04, 0.1, 0.22, 0.45, 1.0)
ENTRIES: dict[str, Any] = {
    "kind": "evaluation",
    "model": 1,
    "prediction": "binary",
    "edges": ENDS[1:-1],
    "calibration": 2.0,
    "centre": 0.2,
}


def sigmoid(logits: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return 1 / (1 + np.exp(-logits))


def counts_of(
    predicted: np.ndarray[Any, np.dtype[np.float64]], outcome: np.ndarray[Any, np.dtype[np.float64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.histogram(predicted[outcome == each], ENDS)[0] for each in (0, 1)], dtype=float)


def patients(count: int, slope: float = 1.0, intercept: float = 0.0, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    logits = draw.normal(-1.7, 1.3, count)
    outcome = (draw.random(count) < sigmoid(intercept + slope * logits)).astype(float)
    return {PREDICTION: sigmoid(logits), OUTCOME: outcome}


@settings(max_examples=300, deadline=None)
@given(
    predicted=st.floats(-1.0, 2.0) | st.sampled_from([0.0, 1.0, 5e-324, math.inf, -math.inf]),
    outcome=st.sampled_from([0.0, 1.0]),
    weight=st.floats(0.1, 10),
    centre=st.floats(0.001, 0.999),
    noise=st.sampled_from([0.01, 4.0, 1e5]),
)
def test_one_patient_moves_the_sum_by_no_more_than_the_sensitivity(
    predicted: float, outcome: float, weight: float, centre: float, noise: float
) -> None:
    asked = question({**ENTRIES, "calibration": weight, "centre": centre}, noise_multiplier=noise)
    grid = asked.grid()
    total = asked.total({PREDICTION: np.array([predicted]), OUTCOME: np.array([outcome])}, grid.spacing)
    assert 0 < sum(int(step) ** 2 for step in total) <= Fraction(grid.sensitivity) ** 2


def test_the_sensitivity_is_that_of_the_bins_and_of_the_weight_together() -> None:
    assert question(ENTRIES).sensitivity == pytest.approx(math.sqrt(1 + 4), rel=1e-15)
    # A tree of two levels.
    assert question(ENTRIES | {"edges": None, "bins": 20}).sensitivity == pytest.approx(math.sqrt(2 + 4), rel=1e-15)
    # The bound of the two sums is nearly reached: with certain predictions that are wrong.
    rows = Recalibration(2.0, 0.2, ENDS).vectors(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert (np.linalg.norm(rows, axis=1) > 1.99).all()


def test_both_sums_are_zero_on_average_in_a_calibrated_model_whatever_it_predicts() -> None:
    """By arithmetic: with probability p of the outcome, each prediction p adds zero."""
    p = np.linspace(1e-3, 1 - 1e-3, 999)
    having, without = (Recalibration(2.0, 0.3, ENDS).vectors(p, np.full(999, y)) for y in (1.0, 0.0))
    assert np.abs(p[:, None] * having + (1 - p)[:, None] * without).max() < 1e-14


@pytest.mark.parametrize("slope", [0.9, 1.0, 1.1])
def test_it_agrees_with_maximum_likelihood_near_a_calibrated_model(slope: float) -> None:
    """Without noise: statsmodels' logistic regression of the outcome on the logit, and its standard errors."""
    columns = patients(200_000, slope)
    asked = question(ENTRIES, noise_multiplier=1e-3)
    answer = asked.answer(NoisedSum(exact(asked, columns), 1e-6, 1))
    table = next(each for each in answer.tables if each.name == "recalibration")
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    logits = np.log(columns[PREDICTION] / (1 - columns[PREDICTION]))
    fitted = sm.GLM(columns[OUTCOME], sm.add_constant(logits), family=sm.families.Binomial()).fit()
    large = sm.GLM(columns[OUTCOME], np.ones(len(logits)), family=sm.families.Binomial(), offset=logits).fit()
    # Its weights are cut, so that both estimates differ by less than their own errors.
    assert rows[SLOPE]["estimate"] == pytest.approx(fitted.params[1], abs=0.02)
    assert rows[IN_THE_LARGE]["estimate"] == pytest.approx(large.params[0], abs=0.02)
    assert 0.85 < rows[SLOPE]["sampling_error"] / fitted.bse[1] < 1.5
    assert rows[IN_THE_LARGE]["sampling_error"] == pytest.approx(large.bse[0], rel=0.1)


@pytest.mark.slow
def test_intervals_cover_a_calibrated_model_as_often_as_they_say() -> None:
    """1,500 windows of 2,000 patients under noise. At least 95 % hold, less chance: false-alarm rate below 1 in 2,000.

    Errors are the most that the counts allow, so that it can be more.
    """
    recalibration, draw, std = Recalibration(2.0, 0.3, ENDS), np.random.default_rng(7), 8 * math.sqrt(5)
    covered = np.zeros(2)
    for seed in range(1500):
        columns = patients(2000, seed=seed)
        sums = recalibration.vectors(columns[PREDICTION], columns[OUTCOME]).sum(axis=0) + std * draw.normal(size=2)
        counts = counts_of(columns[PREDICTION], columns[OUTCOME]) + std * draw.normal(size=(2, 5))
        estimates = recalibration.read(sums, std**2, counts, std**2 * np.eye(5))
        covered += (estimates.low <= [1, 0]) & (estimates.high >= [1, 0])
    assert (covered / 1500 > 0.93).all()
    assert (covered / 1500 < 0.99).all()


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_the_error_is_the_largest_that_predictions_with_these_counts_can_have(share: float) -> None:
    """By linear programming over where a calibrated model's patients lie in their bins, with hardly any noise."""
    asked, count = Recalibration(2.0, 0.2, ENDS), 1e5
    means = np.array(ENDS[:-1]) + share * np.diff(ENDS)
    counts = count * np.array([1 - means, means])
    # What each of the two sums moves the slope by.
    none, first, second = (asked.read(sums, 1e-12, counts, 1e-12 * np.eye(5)) for sums in (np.zeros(2), *np.eye(2)))
    rows = np.array([each.estimate - none.estimate for each in (first, second)])
    largest = np.zeros(2)
    for low, high, mean in zip(ENDS[:-1], ENDS[1:], means, strict=True):
        p = np.linspace(max(low, 1e-4), min(high, 1 - 1e-4), 4001)
        without, having = (asked.vectors(p, np.full(4001, y)) @ rows for y in (0.0, 1.0))
        variances = p[:, None] * having**2 + (1 - p)[:, None] * without**2
        for place in range(2):
            scale = variances[:, place].max()
            found = linprog(-variances[:, place] / scale, A_eq=[np.ones(4001), p], b_eq=[1.0, mean])
            largest[place] -= count * scale * found.fun
    # Lines are drawn over 33 points of a bin, so that the error is less exact than the program's.
    assert none.sampling_error == pytest.approx(np.sqrt(largest), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(uneven.CASES))
@pytest.mark.parametrize(("epsilon", "size", "runs"), [(0.25, 4000, 500), (1.0, 20_000, 200)])
def test_false_alarms_are_as_rare_as_stated_wherever_predictions_lie_in_their_bins(
    name: str, epsilon: float, size: int, runs: int
) -> None:
    """If 5 % of years have a false alarm, so many are seen with probability below 1 in 10,000."""
    alarmed = uneven.false_alarms(name, runs, size, power.noise_for(epsilon), seed=3)
    assert (alarmed <= binom.isf(1e-4, runs, 0.05)).all()


def test_with_too_few_patients_for_the_noise_there_is_no_estimate() -> None:
    asked = question(ENTRIES, noise_multiplier=4.0)
    draw = np.random.default_rng(1)
    for _ in range(20):
        noised = exact(asked, patients(5)) + 9.0 * draw.normal(size=asked.cells)
        table = next(each for each in asked.answer(NoisedSum(noised, 9.0, 1)).tables if each.name == "recalibration")
        assert all(row[table.columns.index("estimate")] is None for row in table.rows)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"centre": None}, "come together"),
        ({"calibration": None}, "come together"),
        ({"groups": [{"column": "sex", "categories": ["f", "m"]}]}, "all patients together"),
        ({"prediction": "classes", "classes": 3, "edges": None}, "is not for predictions of the form classes"),
        ({"calibration": 0.0}, "calibration"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        question({**ENTRIES, **entries})


def test_questions_of_earlier_versions_keep_their_digest() -> None:
    plain = {name: value for name, value in ENTRIES.items() if name not in ("calibration", "centre")}
    dumped = question(plain).model_dump(mode="json")
    assert not {"calibration", "centre", "first_record"} & set(dumped)
    assert question(plain).protocol == 1
    assert question(ENTRIES).protocol == 4
