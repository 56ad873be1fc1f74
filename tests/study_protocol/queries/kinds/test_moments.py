"""Means and standard deviations without noise are those of pandas."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.moments import Moments
from tests.factories.questions import AGE, DOCUMENTS, answer_without_noise, clipped, column, exact, patients, question

CENTRED = pytest.mark.parametrize("centred", [False, True])


@CENTRED
def test_moments_are_those_of_pandas(centred: bool) -> None:
    """Up to the grid: with noise 0.001 it is so fine that 1e-9 of the range holds for 3,000 patients."""
    columns = patients(3000)
    found = answer_without_noise(question(DOCUMENTS["moments"], noise_multiplier=0.001, centred=centred), columns)
    frame = clipped(columns)
    assert column(found, "mean") == pytest.approx(frame.mean().to_numpy(), rel=1e-8)
    assert column(found, "standard-deviation") == pytest.approx(frame.std().to_numpy(), rel=1e-7)
    assert column(found, "patients") == pytest.approx(frame.notna().sum().to_numpy(), rel=1e-9)
    assert column(found, "mean", "sampling_error") == pytest.approx(frame.sem().to_numpy(), rel=0.1)
    assert column(found, "mean", "dp_error").tolist() == [0, 0, 0]


@pytest.mark.parametrize(("centred", "squares"), [(False, 1.25), (True, 0.25)])
def test_a_patient_without_a_value_adds_nothing_and_one_beyond_the_range_counts_as_its_end(
    centred: bool, squares: float
) -> None:
    """(1, y, y²), or y² - ½, of each: 75 of [0, 100] is y = 1/2, 250 is y = 1."""
    asked = question({"kind": "moments", "numbers": [AGE]}, noise_multiplier=0.001, centred=centred)
    assert exact(asked, {"age": np.array([75.0, np.nan, 250.0])}) == pytest.approx([2, 1.5, squares], abs=1e-6)
    assert exact(asked, {"age": np.array([np.nan])}).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("centred", "squares"), [(False, -2.0), (True, -52.0)])
def test_a_standard_deviation_that_noise_makes_negative_is_shown_as_zero(centred: bool, squares: float) -> None:
    """100 patients at the middle, Σy² = -2."""
    asked = question({"kind": "moments", "numbers": [AGE]}, centred=centred)
    answer = asked.answer(NoisedSum(np.array([100.0, 0.0, squares]), 1.0, 1))
    assert column(answer, "mean").tolist() == [50]
    assert column(answer, "standard-deviation").tolist() == [0]
    assert column(answer, "standard-deviation", "low").tolist() == [0]
    assert column(answer, "standard-deviation", "high")[0] > 0


@pytest.mark.parametrize(("count", "square"), [(1, 3), (3, 9), (5, 15)])
def test_one_patient_moves_three_numbers_of_each_column(count: int, square: int) -> None:
    numbers = tuple({"column": f"x{place}", "low": 0, "high": 1} for place in range(count))
    asked = Moments.model_validate({"kind": "moments", "noise_multiplier": 4.0, "numbers": numbers})
    assert asked.cells == 3 * count
    assert asked.sensitivity**2 == pytest.approx(square, rel=1e-15)
    assert (asked.whole, asked.columns) == (False, tuple(f"x{place}" for place in range(count)))
    centred = asked.model_copy(update={"centred": True})
    assert centred.cells == 3 * count
    assert centred.sensitivity**2 == pytest.approx(square * 3 / 4, rel=1e-15)


@CENTRED
def test_no_patient_at_all_has_no_mean(centred: bool) -> None:
    asked = question({"kind": "moments", "numbers": [AGE]}, centred=centred)
    answer = asked.answer(NoisedSum(np.array([2.0, 1.0, -1.0]), 1.0, 1))
    assert np.isnan(column(answer, "mean")).all()
    assert np.isnan(column(answer, "standard-deviation")).all()
