"""Tables of an evaluation: labels by group, figures and counts."""

from __future__ import annotations

import numpy as np

from study_protocol.queries.counting import counts, unknown_estimates
from study_protocol.queries.evaluation.tables import counts_by, figures_table, repeated, stacked


def test_labels_are_repeated_each_and_as_a_whole() -> None:
    assert repeated(["a", "b"], 2, 2) == ["a", "a", "b", "b", "a", "a", "b", "b"]
    assert repeated(("a",), 3) == ["a", "a", "a"]
    assert repeated([], 3, 3) == []


def test_figures_have_text_and_numbers_before_them_and_no_value_where_none_is_known() -> None:
    labels = [("group", ["all patients", "sex: f"]), ("threshold", np.array([0.5, np.nan]))]
    table = figures_table("thresholds", "at each", labels, unknown_estimates(2), stacked([[8.0], np.array([3.0])]))
    assert table.columns == (
        *("group", "threshold", "estimate", "dp_error", "sampling_error", "low", "high", "patients"),
    )
    assert table.rows == (("all patients", 0.5, *[None] * 5, 8), ("sex: f", None, *[None] * 5, 3))
    assert table.suppressed(5).rows == table.rows[:1]


def test_counts_have_their_labels_and_their_raw_values() -> None:
    labels = [("group", ["all patients", "not evaluated"])]
    table = counts_by("patients", "patients evaluated", labels, counts(np.array([16.0, -1.0]), np.zeros(2)))
    assert table.columns[:3] == ("group", "estimate", "raw")
    assert [row[:3] for row in table.rows] == [("all patients", 16, 16), ("not evaluated", 0, -1)]
    assert table.counts == "estimate"
