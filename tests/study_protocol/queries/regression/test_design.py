"""Columns of a design, scaled and in their own units."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from study_protocol.queries.regression.design import Design, Factor
from study_protocol.queries.variables import Indicator, Range

AGE = Range(column="age", low=20.0, high=80.0)
FEMALE = Indicator(column="sex", categories=("f",))
WARD = Factor(column="ward", categories=("a", "b", "c"), reference="b")
DESIGN = Design((AGE, FEMALE, WARD), (("age", "ward"), ("sex", "age")))
PATIENTS = {
    "age": np.array([20.0, 50.0, 95.0, np.nan, 61.0]),
    "sex": np.array(["f", "m", "f", "f", "m"]),
    "ward": np.array(["a", "b", "c", "a", "elsewhere"]),
}


def test_scaled_rows_are_the_own_ones_times_the_units() -> None:
    age, female, a, c = (np.array(values) for values in ([20, 50, 80.0], [1, 0, 1.0], [1, 0, 0.0], [0, 0, 1.0]))
    own = np.column_stack([age, female, a, c, age * a, age * c, female * age, np.ones(3)])
    assert DESIGN.rows(PATIENTS)[:3] == pytest.approx(own @ DESIGN.units.T, rel=1e-12, abs=1e-12)
    assert DESIGN.labels == ("age", "sex: f", "ward: a", "ward: c", "age × ward: a", "age × ward: c", "sex: f × age")


def test_a_missing_number_and_a_category_of_no_list_are_missing() -> None:
    rows = DESIGN.rows(PATIENTS)
    assert np.isnan(rows).any(axis=1).tolist() == [False, False, False, True, True]


def test_only_columns_of_0_and_1_have_a_span() -> None:
    assert (DESIGN.spans > 0).tolist() == [False, True, True, True, False, False, False]


def test_a_reference_is_one_of_the_categories() -> None:
    with pytest.raises(ValidationError, match="reference is one of its categories"):
        Factor(column="ward", categories=("a", "b"), reference="z")
