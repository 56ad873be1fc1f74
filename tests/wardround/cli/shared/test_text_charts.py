"""Charts of answers as characters, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from study_protocol.queries.answer import AnswerTable, Plot
from wardround.cli.shared.text_charts import BAR_WIDTH, GRID_HEIGHT, GRID_WIDTH, curves, intervals


def table(rows: list[tuple[Any, ...]], kind: str, *, by: bool = False) -> AnswerTable:
    """Columns x, estimate, low, high, and with `by` the curve's name first."""
    columns = ("x", "estimate", "low", "high")
    values: Any = {"kind": kind, "x": "x", "y": "estimate", "low": "low", "high": "high"}
    return AnswerTable(
        name="n",
        title="t",
        columns=("group", *columns) if by else columns,
        rows=tuple(rows),
        plot=Plot(**values | ({"by": "group"} if by else {})),
    )


def test_a_bar_begins_at_zero_and_its_interval_lies_over_it() -> None:
    """27 steps from 0 to 27: the estimate stands at its own number."""
    (bar, nothing) = intervals(table([("a", 10.0, 5.0, 27.0), ("b", None, 0.0, 27.0)], "bars")) or []
    assert bar == "█" * 5 + "▒" * 5 + "●" + "─" * 17
    assert len(bar) == BAR_WIDTH
    assert nothing == ""


def test_bars_below_zero_leave_room_for_zero() -> None:
    (bar,) = intervals(table([("a", 9.0, -9.0, 18.0)], "bars")) or []
    assert bar == "─" * 9 + "▒" * 9 + "●" + "─" * 9


def test_points_are_scaled_from_their_lowest_end() -> None:
    pictures = intervals(table([("a", 100.0, 100.0, 127.0), ("b", 113.0, None, None)], "points"))
    assert pictures == ["●" + "─" * 27, " " * 13 + "●"]


def test_equal_numbers_all_stand_at_the_beginning() -> None:
    assert intervals(table([("a", 5.0, 5.0, 5.0)], "points")) == ["●"]


@pytest.mark.parametrize("kind", ["steps", "line"])
def test_curves_have_no_intervals_beside_their_rows(kind: str) -> None:
    assert intervals(table([(0.0, 1.0, 1.0, 1.0)], kind)) is None


def test_what_has_no_plot_or_no_number_has_no_picture() -> None:
    plain = AnswerTable(name="n", title="t", columns=("x",), rows=((1.0,),))
    assert (intervals(plain), curves(plain)) == (None, None)
    unknown = [(0.0, None, None, None)]
    assert (intervals(table(unknown, "bars")), curves(table(unknown, "steps"))) == (None, None)
    assert curves(table([(0.0, 1.0, 1.0, 1.0)], "bars")) is None


def cells(lines: list[str]) -> list[str]:
    """The grid without its axis, padded."""
    return [line.partition("┤")[2].ljust(GRID_WIDTH) for line in lines[:GRID_HEIGHT]]


def test_a_step_holds_its_level_until_the_next_one() -> None:
    lines = curves(table([(0.0, 1.0, None, None), (63.0, 0.0, None, None)], "steps"))
    assert lines is not None
    grid = cells(lines)
    assert grid[0] == "●" * 63 + " "
    assert grid[-1] == " " * 63 + "●"
    assert all(not row.strip() for row in grid[1:-1])
    assert lines[0].startswith("1 ┤")
    assert lines[GRID_HEIGHT - 1].startswith("0 ┤")
    assert lines[GRID_HEIGHT] == "  └" + "─" * GRID_WIDTH
    assert lines[GRID_HEIGHT + 1].split() == ["0", "x", "63"]


def test_a_line_goes_straight_from_point_to_point_whatever_their_order() -> None:
    """From 0 at 0 to 13 at 63: in column c it lies in row 13·c/63, rounded."""
    lines = curves(table([(63.0, 13.0, None, None), (0.0, 0.0, None, None)], "line"))
    assert lines is not None
    grid = cells(lines)
    for column in range(GRID_WIDTH):
        (row,) = [place for place, text in enumerate(grid) if text[column] == "●"]
        assert GRID_HEIGHT - 1 - row == pytest.approx(13 * column / 63, abs=0.51)


def test_curves_have_marks_of_their_own_and_their_intervals_a_band() -> None:
    rows = [("f", 0.0, 1.0, 0.5, 1.0), ("f", 9.0, 1.0, 0.5, 1.0), ("m", 0.0, 0.0, 0.0, 0.0), ("m", 9.0, 0.0, 0.0, 0.0)]
    lines = curves(table(rows, "line", by=True))
    assert lines is not None
    grid = cells(lines)
    assert (grid[0], grid[-1]) == ("●" * GRID_WIDTH, "○" * GRID_WIDTH)
    # The band of f goes from 1 to a half, under its mark.
    assert grid[1:7] == ["·" * GRID_WIDTH] * 6
    assert lines[-1].strip() == "● f   ○ m   · 95 % interval"


def test_bins_without_a_number_stand_one_after_another() -> None:
    lines = curves(table([("low", 0.0, None, None), ("high", 1.0, None, None)], "line"))
    assert lines is not None
    assert lines[GRID_HEIGHT + 1].split() == ["0", "x", "1"]
