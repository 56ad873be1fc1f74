"""Tables of a regression under sums that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.glm import GeneralisedLinear
from study_protocol.queries.regression.answers import FRAME, NEXT, p_values_of

QUESTION = GeneralisedLinear.model_validate(
    {
        "kind": "glm",
        "family": "logistic",
        "noise_multiplier": 1.0,
        "outcome": {"column": "died", "categories": ["yes"]},
        "predictors": [{"column": "age", "low": 20.0, "high": 80.0}, {"column": "sex", "categories": ["f"]}],
        "by_hospital": True,
        "hospitals": ["north", "south"],
    }
)


def test_a_step_on_the_way_says_where_the_next_one_begins() -> None:
    answer = QUESTION.answer(NoisedSum(np.zeros(QUESTION.cells), 1.0, 0))
    tables = {table.name: table for table in answer.tables}
    assert [row[0] for row in tables[NEXT].rows] == ["age", "sex: f", "intercept: north", "intercept: south"]
    # A centre and a row of the matrix for both columns.
    assert len(tables[FRAME].rows) == 2 + 4
    assert "The analysis goes on" in answer.notes[0]
    assert all(table.counts is None for name, table in tables.items() if name != "patients")


def test_p_values_are_those_of_the_normal_law() -> None:
    found = p_values_of(np.array([0.5, -1.0, np.nan]), np.array([0.25, 2.0, 1.0]))
    assert found[:2] == pytest.approx(2 * stats.norm.sf([2.0, 0.5]))
    assert np.isnan(found[2])
    far = np.array([7.0, -9.0, 20.0, 37.0])
    assert p_values_of(far, np.ones(4)) == pytest.approx(2 * stats.norm.sf(np.abs(far)), rel=1e-10, abs=0.0)
