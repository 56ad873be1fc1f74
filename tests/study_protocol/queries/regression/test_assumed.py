"""Errors of a regression that are foretold are those that come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.expected import expected_errors
from tests.factories.questions import question


@pytest.mark.parametrize("family", ["logistic", "poisson", "linear"])
def test_the_errors_of_a_regression_are_foretold(family: str) -> None:
    """Cohorts of the assumed law: the median errors of 15 answers are within 15 % of those foretold."""
    outcomes: dict[str, dict[str, Any]] = {
        "logistic": {"column": "y", "categories": ["1.0"]},
        "poisson": {"column": "y", "low": 0.0, "high": 4.0},
        "linear": {"column": "y", "low": -6.0, "high": 6.0},
    }
    document = {
        "kind": "glm",
        "family": family,
        "noise_multiplier": 3.7306,
        "outcome": outcomes[family],
        "predictors": [{"column": "x", "low": -3.0, "high": 3.0}, {"column": "sex", "categories": ["f"]}],
    }
    first = question(document)
    foretell = {one.figure: one for one in expected_errors(first, 6_000, first.grid().std * first.grid().spacing)}
    generator = np.random.default_rng(3)
    found: list[list[float]] = []
    for _ in range(15):
        drawn = {
            "logistic": generator.random(6_000) < 0.5,
            "poisson": generator.poisson(1.0, 6_000),
            "linear": generator.normal(0, 2, 6_000),
        }[family]
        columns = {"x": generator.standard_normal(6_000), "y": drawn.astype(float)}
        columns["sex"] = np.where(generator.random(6_000) < 0.5, "f", "m")
        step = first
        while True:
            grid = step.grid()
            noise = generator.normal(0, grid.std * grid.spacing, step.cells)
            total = step.total(columns, grid.spacing) * grid.spacing + noise
            answer = step.answer(NoisedSum(total, grid.std * grid.spacing, 0))
            following = step.next_question(answer)
            if following is None:
                break
            step = following
        found.append([float(row[place]) for row in answer.tables[0].rows for place in (2, 3)])  # type: ignore[arg-type]
    assert list(foretell) == ["x", "sex: f", "intercept"]
    expected = [error for one in foretell.values() for error in (one.dp_error, one.sampling_error)]
    assert np.median(found, axis=0) == pytest.approx(expected, rel=0.15)
    assert all(one.estimate is None for one in foretell.values())
