"""Several rows of a patient become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from study_protocol.queries.rows import one_row_each
from tests.factories.questions import question

STAGE = {"column": "stage", "categories": ["I", "II", "III"], "missing_values": ["?"]}
WEIGHT = {"column": "weight", "edges": [60, 80], "missing_values": ["unknown"]}
WHO = ["ann", "bob", "ann", "ann", "cleo", "bob"]
COLUMNS: dict[str, NDArray[Any]] = {
    "stage": np.array(["II", "?", "III", "I", "x", "odd"], object),
    "weight": np.array(["70", "unknown", None, "80", "unknown", "50"], object),
}


@pytest.mark.parametrize(
    ("rule", "stages", "weights"),
    [
        ("first", ["II", "?", "x"], ["70", "unknown", "unknown"]),
        ("last", ["I", "odd", "x"], ["80", "50", "unknown"]),
        ("mean", ["II", "?", "x"], [75.0, 50.0, np.nan]),
        ("any", ["III", "odd", "x"], [80.0, 50.0, np.nan]),
    ],
)
def test_a_rule_says_which_row_counts(rule: str, stages: list[Any], weights: list[Any]) -> None:
    asked = question({"kind": "table", "variables": [STAGE, WEIGHT], "rows": rule})
    found = one_row_each(asked, COLUMNS, WHO)
    assert found["stage"].tolist() == stages
    if rule in ("first", "last"):
        assert found["weight"].tolist() == weights
    else:
        np.testing.assert_array_equal(found["weight"], weights)
    assert asked.total(found, 1.0).sum() == 3


def test_among_equals_the_first_row_counts_and_conditions_are_about_the_merged_row() -> None:
    asked = question({"kind": "count", "rows": "any", "where": [{"column": "weight", "low": 75}]})
    numbers = {"weight": np.array([70.0, 80.0, np.nan, 90.0])}
    assert asked.total(one_row_each(asked, numbers, ["a", "a", "b", "c"]), 1.0).tolist() == [2]
    text = question({"kind": "table", "variables": [STAGE], "rows": "any"})
    same = {"stage": np.array(["I", " I", "II"], object)}
    assert one_row_each(text, same, ["a", "a", "b"])["stage"].tolist() == ["I", "II"]


def test_a_hundred_thousand_rows_are_those_of_pandas() -> None:
    source = np.random.default_rng(1)
    values = source.normal(70, 10, 100_000)
    values[source.uniform(size=len(values)) < 0.2] = np.nan
    who = [str(one) for one in source.integers(0, 30_000, len(values))]
    groups = pd.Series(values).groupby(who, sort=False)
    for rule, expected in (("mean", groups.mean()), ("any", groups.max())):
        asked = question({"kind": "table", "variables": [{"column": "weight", "edges": [60]}], "rows": rule})
        found = one_row_each(asked, {"weight": values}, who)["weight"]
        np.testing.assert_allclose(found, expected.to_numpy(), rtol=1e-13)


def test_means_of_large_numbers_do_not_overflow() -> None:
    asked = question({"kind": "table", "variables": [{"column": "x", "edges": [0]}], "rows": "mean"})
    assert one_row_each(asked, {"x": np.array([1.7e308, 1.7e308])}, ["a", "a"])["x"].tolist() == [1.7e308]


def test_a_text_that_is_no_number_is_a_missing_one() -> None:
    """To refuse it would tell of a value."""
    asked = question({"kind": "table", "variables": [WEIGHT], "rows": "mean"})
    columns = {"weight": np.array(["70", "secret", "inf"], object)}
    assert one_row_each(asked, columns, ["a", "a", "a"])["weight"].tolist() == [70.0]


def test_a_question_without_a_column_counts_every_patient_once() -> None:
    asked = question({"kind": "count", "rows": "any"})
    assert asked.total(one_row_each(asked, COLUMNS, WHO), 1.0).tolist() == [3]
