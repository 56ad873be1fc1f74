"""Least squares: that of scikit-learn without noise, shrunk where the noise is as large as the data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.linear_regression import INTERCEPT
from study_protocol.queries.kinds.numbers import TOO_FEW
from tests.factories.questions import (
    AGE,
    DOCUMENTS,
    PRESSURE,
    answer_without_noise,
    clipped,
    column,
    patients,
    question,
)

X, Y, Z = ({"column": name, "low": -width, "high": width} for name, width in (("x", 4), ("y", 8), ("z", 4)))


def test_a_regression_is_that_of_scikit_learn() -> None:
    columns = patients(3000)
    found = answer_without_noise(question(DOCUMENTS["linear-regression"], noise_multiplier=0.001), columns)
    complete = clipped(columns).dropna()
    inputs, outcome = complete[["age", "f"]].to_numpy(), complete["pressure"].to_numpy()
    model = LinearRegression().fit(inputs, outcome)
    assert column(found, "coefficients") == pytest.approx([*model.coef_, model.intercept_], rel=1e-6)
    assert column(found, "r-squared") == pytest.approx([model.score(inputs, outcome)], rel=1e-6)


@pytest.mark.parametrize("std", [0.0, 2.0])
def test_a_combination_of_predictors_that_does_not_vary_is_shrunk_and_said(std: float) -> None:
    """The same column twice under two names: least squares alone would divide by zero or by noise."""
    x = np.random.default_rng(3).normal(0, 1, 2000)
    columns = {"x": x, "z": x.copy(), "y": 2 * x}
    asked = question({"kind": "linear-regression", "predictors": [X, Z], "outcome": Y}, noise_multiplier=std or 0.001)
    spacing = asked.grid().spacing
    noise = np.random.default_rng(4).normal(0, std, asked.cells) if std else 0.0
    answer = asked.answer(NoisedSum(np.asarray(asked.total(columns, spacing) * spacing + noise, np.float64), std, 1))
    assert any("ridge" in note for note in answer.notes)
    assert column(answer, "coefficients")[:2].sum() == pytest.approx(2, abs=0.3)


def test_a_narrow_column_is_not_shrunk() -> None:
    """It takes a hundredth of its range; the noise is far below what 20,000 patients say about it."""
    source = np.random.default_rng(5)
    x = source.normal(0, 0.03, 20_000)
    columns = {"x": x, "y": 2 * x}
    asked = question({"kind": "linear-regression", "predictors": [X], "outcome": Y}, noise_multiplier=0.01)
    spacing = asked.grid().spacing
    total = asked.total(columns, spacing) * spacing + source.normal(0, 0.01, asked.cells)
    answer = asked.answer(NoisedSum(total, 0.01, 1))
    assert not any("ridge" in note for note in answer.notes)
    assert column(answer, "coefficients")[0] == pytest.approx(2, abs=0.1)


def test_coefficients_are_in_the_columns_own_units() -> None:
    """Six patients on the line pressure = 70 + 0.5 · age, far from the middles of both ranges."""
    document = {"kind": "linear-regression", "predictors": [AGE], "outcome": PRESSURE}
    age = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    asked = question(document, noise_multiplier=0.001)
    answer = answer_without_noise(asked, {"age": age, "pressure": 70 + 0.5 * age})
    assert column(answer, "coefficients") == pytest.approx([0.5, 70], rel=1e-4)
    assert column(answer, "r-squared") == pytest.approx([1], abs=1e-4)
    labels = [row[0] for row in answer.tables[0].rows]
    assert labels == ["age", INTERCEPT]


def test_too_few_patients_have_no_coefficients_and_a_note_says_so() -> None:
    asked = question({"kind": "linear-regression", "predictors": [AGE], "outcome": PRESSURE})
    answer = asked.answer(NoisedSum(np.zeros(asked.cells), 4.0, 1))
    assert answer.notes == (TOO_FEW,)
    assert np.isnan(column(answer, "coefficients")).all()
