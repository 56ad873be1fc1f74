"""Columns as a question names them: labels, places and conditions."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.variables import (
    Condition,
    Indicator,
    Range,
    UnreadableColumn,
    Variable,
    bins_of,
    column_of,
    plain,
    require_codes,
)
from tests.factories.questions import (
    question,
)


def test_labels_of_bins_differ_where_their_edges_do() -> None:
    asked = question({"kind": "table", "variables": [{"column": "id", "edges": [1_000_000, 1_000_001, 1_000_001.5]}]})
    (variable,) = asked.variables  # type: ignore[union-attr]
    assert variable.labels == (
        "below 1000000",
        "1000000 to 1000001",
        "1000001 to 1000001.5",
        "1000001.5 and above",
        "missing",
    )


def test_every_patient_is_in_one_cell_of_a_variable() -> None:
    ages = Variable(column="age", edges=(40.0, 60.0), missing_values=("999",))
    columns = {"age": np.array([39.9, 40.0, 60.0, np.nan, 999.0])}
    assert ages.places(columns).tolist() == [0, 1, 2, 3, 3]
    sexes = Variable(column="sex", categories=("f", "m"), missing_values=("u",))
    assert sexes.places({"sex": np.array(["m", "x", "u", None, "f"], object)}).tolist() == [1, 2, 3, 3, 0]
    has = Variable(column="sex", presence=True, missing_values=("u",))
    assert has.places({"sex": np.array(["m", "u", None], object)}).tolist() == [0, 1, 1]
    assert (ages.usual, sexes.usual) == ((True, True, True, False), (True, True, False, False))


def test_numbers_are_clipped_and_scaled_to_their_range() -> None:
    ages = Range(column="age", low=20, high=60, missing_values=("-1",))
    assert (ages.middle, ages.half) == (40, 20)
    scaled = ages.scaled({"age": np.array([10.0, 20.0, 50.0, 1e9, -1.0])})
    np.testing.assert_array_equal(scaled, [-1, -1, 0.5, 1, np.nan])
    female = Indicator(column="sex", categories=("f",), missing_values=("u",))
    np.testing.assert_array_equal(female.scaled({"sex": np.array(["f", "m", "u"], object)}), [1, -1, np.nan])


def test_a_condition_holds_from_low_up_to_below_high_and_never_of_a_missing_value() -> None:
    columns = {"age": np.array([17.9, 18.0, 64.9, 65.0, np.nan])}
    assert Condition(column="age", low=18, high=65).holds(columns).tolist() == [False, True, True, False, False]
    assert Condition(column="age", high=18).holds(columns).tolist() == [True, False, False, False, False]
    stage = Condition(column="stage", categories=("3",))
    assert stage.holds({"stage": np.array(["3.0", "4", None], object)}).tolist() == [True, False, False]


def test_a_column_is_found_however_its_accents_are_written_and_a_lacking_one_is_named() -> None:
    table = {"gr\u00f6\u00dfe": np.array([170.0])}
    assert column_of(table, "gro\u0308\u00dfe").tolist() == [170]
    with pytest.raises(UnreadableColumn, match="no column 'weight'"):
        column_of(table, "weight")


@pytest.mark.parametrize(
    ("categories", "missing", "words"),
    [
        (("a", " "), (), "an empty cell is missing anyway"),
        (("3", "3.0"), (), "a value stands twice"),
        (("a",), ("a",), "both a category and one of missing_values"),
        (("0,-1",), (), "one text with a comma"),
        ((), ("0 to 9",), "A list, a range"),
        ((), ("a|b",), "A list, a range"),
    ],
)
def test_codes_that_say_something_else_than_is_meant_are_refused(
    categories: tuple[str, ...], missing: tuple[str, ...], words: str
) -> None:
    require_codes("x", ("f", "m"), ("u", "-1"))
    with pytest.raises(ValueError, match=words):
        require_codes("x", categories, missing)


def test_numbers_are_written_as_people_do_and_differently_if_they_differ() -> None:
    assert [plain(number) for number in (3.0, -0.5, 1e15, 1e14)] == ["3", "-0.5", "1000000000000000.0", "1" + "0" * 14]
    assert bins_of((1.0, 2.5)) == ("below 1", "1 to 2.5", "2.5 and above", "missing")
