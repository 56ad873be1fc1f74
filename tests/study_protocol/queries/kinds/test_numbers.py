"""Shared parts of questions about numbers: columns that stand once, and tables of their answers."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.counting import counts
from study_protocol.queries.kinds.numbers import counts_table, label_of, numbers_table, require_numbers_once
from study_protocol.queries.variables import Indicator, Range

AGE = Range(column="age", low=0, high=100)
FEMALE, MALE = (Indicator(column="sex", categories=(category,)) for category in ("f", "m"))


def test_one_column_may_stand_with_other_categories_but_not_in_two_ranges() -> None:
    require_numbers_once((AGE, FEMALE, MALE))
    for twice, name in (((AGE, Range(column="age", low=5, high=9)), "age"), ((FEMALE, AGE, FEMALE), "sex")):
        with pytest.raises(ValueError, match=f"column {name}: stands twice"):
            require_numbers_once(twice)


def test_an_indicator_is_labelled_with_its_categories() -> None:
    assert label_of(AGE) == "age"
    assert label_of(Indicator(column="stage", categories=("I", "II"))) == "stage: I or II"


def test_a_row_of_numbers_rests_on_its_own_patients_or_on_those_of_all() -> None:
    estimates = counts(np.array([4.0, 9.0]), np.array([1.0, 0.0]))
    table = numbers_table("mean", "mean", [("age",), ("sex: f",)], estimates, np.array([20.0, 30.0]))
    assert table.columns == ("column", "estimate", "dp_error", "sampling_error", "low", "high", "patients")
    assert [(row[0], row[1], row[2], row[-1]) for row in table.rows] == [("age", 4, 1, 20), ("sex: f", 9, 0, 30)]
    assert table.plot is not None
    pairs = numbers_table("covariance", "covariance", [("age", "age"), ("age", "sex: f")], estimates, 7.0)
    assert pairs.columns[:2] == ("column", "with")
    assert [row[-1] for row in pairs.rows] == [7, 7]
    # Two columns of labels are no axis.
    assert pairs.plot is None


def test_counts_have_a_raw_column_and_count_patients_themselves() -> None:
    table = counts_table("patients", "patients", [()], counts(np.array([-3.0]), np.array([4.0])))
    assert table.columns == ("estimate", "raw", "dp_error", "sampling_error", "low", "high")
    assert table.rows[0][:4] == (0, -3, 2, 0)
    assert table.suppressed(1).rows == ()
