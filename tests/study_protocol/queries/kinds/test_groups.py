"""Curves of several groups in one table."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.counting import counts
from study_protocol.queries.kinds.groups import (
    by_in_words,
    curve_table,
    group_count,
    group_names,
    group_places,
    take_rows,
)
from study_protocol.queries.variables import UnreadableColumn, Variable

SEX = Variable(column="sex", categories=("f",))
EXACT = np.zeros(2)


def test_without_a_variable_all_patients_are_one_group_without_a_name() -> None:
    assert (group_count(None), group_names(None), by_in_words(None)) == (1, ((),), "")
    assert group_places(None, {}, 3).tolist() == [0, 0, 0]


def test_patients_are_in_the_groups_of_the_variable_s_labels() -> None:
    assert group_names(SEX) == (("f",), ("other",), ("missing",))
    assert group_places(SEX, {"sex": np.array(["f", None, "m"], object)}, 3).tolist() == [0, 2, 1]
    assert by_in_words(SEX) == " by sex (f, other, missing)"
    with pytest.raises(UnreadableColumn, match="no column 'sex'"):
        group_places(SEX, {"age": np.zeros(3)}, 3)


def test_the_rows_of_every_group_stand_one_after_another() -> None:
    curves = [counts(np.array([10.0 * group, 10.0 * group + 1]), EXACT) for group in range(3)]
    rests = [5.0, np.array([6.0, 7.0]), 8.0]
    table = curve_table("survival", "alive", SEX, ("month", [0.0, 12.0]), curves, rests, "steps")
    assert table.columns == ("sex", "month", "estimate", "dp_error", "sampling_error", "low", "high", "patients")
    assert [(*row[:3], row[-1]) for row in table.rows] == [
        ("f", 0, 0, 5),
        ("f", 12, 1, 5),
        ("other", 0, 10, 6),
        ("other", 12, 11, 7),
        ("missing", 0, 20, 8),
        ("missing", 12, 21, 8),
    ]
    assert table.plot is not None
    assert (table.plot.x, table.plot.by, table.counts) == ("month", "sex", "patients")


def test_a_group_s_column_that_is_called_as_one_of_an_answer_s_gets_another_name() -> None:
    by = Variable(column="raw", presence=True)
    curves = [counts(np.array([1.0, 2.0]), EXACT)] * 2
    table = curve_table("histogram", "patients", by, ("bin", ["a", "b"]), curves, None)
    assert table.columns[:4] == ("column raw", "bin", "estimate", "raw")
    assert (table.counts, table.plot) == ("estimate", None)


def test_rows_are_taken_in_the_order_in_which_they_are_asked_for() -> None:
    rows = take_rows(counts(np.array([1.0, 4.0, 9.0]), np.zeros(3)), [2, 0])
    assert rows.raw.tolist() == [9, 1]
    assert rows.sampling_error.tolist() == [3, 1]
