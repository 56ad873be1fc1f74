"""How many cells of a column fit a declaration, for the eyes of the hospital alone."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.cells import column_of, read_categories, read_numbers
from study_protocol.cells.column import Column
from study_protocol.cells.counting import CellCounts, Declaration, add_counts


def numbers(low: float = 0.0, high: float = 100.0) -> Declaration:
    """Age, of which -1 means missing."""

    def read(cells: Column):  # type: ignore[no-untyped-def]
        found = read_numbers(cells, ("-1",))
        outside = int(((found.values < low) | (found.values > high)).sum())
        return found, outside, found.kind

    return Declaration("age", read, (low, high))


def first_row(marked: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> str:
    return f"row {int(np.flatnonzero(marked)[0]) + 1}"


def test_every_cell_is_counted_once() -> None:
    cells = column_of(["20", "-1", "", "80", "120", "secret", "5O"], name="age")
    counts = numbers().count(cells, first_row)
    assert (counts.cells, counts.missing, counts.wrong, counts.outside) == (7, 2, 2, 1)
    assert counts.first == "row 6"
    assert counts.filled == (0.2, 1.2)
    assert counts.unusable.startswith(
        "column age: 2 of 7 cells are neither a value nor a declared code, and count as missing. The first is in row 6"
    )
    assert "secret" not in counts.unusable + repr(counts)


def test_where_all_cells_fit_nothing_is_said() -> None:
    counts = numbers().count(column_of([20.0, 50.0, 90.0, np.nan]), first_row)
    assert (counts.unusable, counts.first, counts.kind, counts.warnings) == ("", "", "", ())


@pytest.mark.parametrize(
    ("values", "narrow"),
    [
        # Three values in 2 % of the range: another unit, such as 0.2 instead of 20 %.
        ([0.2, 0.5, 2.1], True),
        ([0.2, 0.5, 2.3], False),
        ([0.2, 0.5], False),
        ([0.0, 0.0, 0.0], False),
    ],
    ids=["narrow", "wide enough", "few", "one value for all"],
)
def test_values_in_a_sliver_of_the_public_range_may_have_another_unit(values: list[float], narrow: bool) -> None:
    counts = numbers().count(column_of(values), first_row)
    assert bool(counts.narrow) == narrow
    assert ("Is the unit or the decimal mark another?" in " ".join(counts.warnings)) == narrow


def test_without_a_finite_range_or_a_value_nothing_is_known_of_how_it_is_filled() -> None:
    declaration = numbers()
    assert Declaration("age", declaration.read).count(column_of([1.0]), first_row).filled is None
    assert numbers(high=np.inf).count(column_of([1.0]), first_row).filled is None
    assert declaration.count(column_of(["", ""]), first_row).filled is None


def test_cells_that_are_a_category_but_for_capitals_are_warned_of() -> None:
    def read(cells: Column):  # type: ignore[no-untyped-def]
        found = read_categories(cells, ("ja", "nein"))
        return found, int(found.wrong.sum()), ""

    counts = Declaration("smoker", read).count(column_of(["ja", "JA", "Nein", "x"]), first_row)
    assert counts.near == 2
    assert counts.warnings == (
        "column smoker: 2 of 4 cells are one of the categories but for capitals or leading zeros, and do not count "
        "as it",
    )


def test_counts_of_parts_are_those_of_the_whole_table() -> None:
    cells = ["20", "x", "-1", "95", "", "y", "30"]
    whole = numbers().count(column_of(cells), first_row)
    parts = [numbers().count(column_of(cells[place : place + 3]), first_row) for place in (0, 3, 6)]
    (total,) = add_counts([[part] for part in parts])
    # The place is that of the first part with a wrong cell.
    assert total == whole
    assert add_counts([]) == ()
    with pytest.raises(ValueError, match="shorter"):
        add_counts([[whole], []])


def test_the_first_wrong_cell_of_all_parts_is_named() -> None:
    sound, wrong = CellCounts("a", 5, 0, 0, 0), CellCounts("a", 4, 1, 2, 0, "text", "row 9", filled=(0.1, 0.4))
    total = sound + wrong + CellCounts("a", 1, 0, 1, 0, "too large", "row 12", filled=(0.0, 0.3))
    assert (total.first, total.kind, total.wrong, total.filled) == ("row 9", "text", 3, (0.0, 0.4))
