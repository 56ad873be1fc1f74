"""Charts of answers as text: a mark and its interval beside each row, and curves on a grid of characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from study_protocol.queries.answer import AnswerTable, Plot

# The width of an interval's picture and of a grid, and the height of a grid, in characters.
BAR_WIDTH, GRID_WIDTH, GRID_HEIGHT = 28, 64, 14
_MARKS = "●○▲△■□◆◇"
_BAND = "·"


Point = tuple[float, float, float | None, float | None]
"""(x, y, low, high). The ends of the interval may be unknown."""


@dataclass(frozen=True)
class Curve:
    """A named curve with its points in order of x."""

    name: str
    points: tuple[Point, ...]


def intervals(table: AnswerTable) -> list[str] | None:
    """Return a picture of the estimate and interval of each row, or None if the table has none.

    All pictures have one scale, from zero or from the lowest end.
    """
    if table.plot is None or table.plot.kind in ("steps", "line"):
        return None
    rows = [_numbers(table, row, table.plot) for row in table.rows]
    ends = [end for row in rows if row is not None for end in row if end is not None]
    if not ends:
        return None
    lowest, highest = min(0.0, *ends) if table.plot.kind == "bars" else min(ends), max(0.0, *ends)
    return [_interval(row, lowest, highest, filled=table.plot.kind == "bars") for row in rows]


def curves(table: AnswerTable) -> list[str] | None:
    """Return the table's curves on a grid of characters, with axes and a legend, or None without curves or numbers."""
    if table.plot is None or table.plot.kind not in ("steps", "line"):
        return None
    table_curves = _curves(table, table.plot)
    points = [point for curve in table_curves for point in curve.points]
    if not points:
        return None
    return _Grid(table_curves, steps=table.plot.kind == "steps").lines(table.plot)


def _numbers(
    table: AnswerTable, row: Sequence[float | str | None], plot: Plot
) -> tuple[float, float | None, float | None] | None:
    y, low, high = (_number(table, row, name) for name in (plot.y, plot.low, plot.high))
    return None if y is None else (y, low, high)


def _number(table: AnswerTable, row: Sequence[float | str | None], name: str | None) -> float | None:
    value = None if name is None else row[table.columns.index(name)]
    return float(value) if isinstance(value, int | float) else None


def _interval(
    row: tuple[float, float | None, float | None] | None, lowest: float, highest: float, *, filled: bool
) -> str:
    if row is None:
        return ""
    y, low, high = row
    place = {name: _place(value, lowest, highest, BAR_WIDTH) for name, value in (("y", y), ("zero", 0.0))}
    cells = [" "] * BAR_WIDTH
    if filled:
        for at in range(place["zero"], place["y"] + 1):
            cells[at] = "█"
    if low is not None and high is not None:
        first, last = _place(low, lowest, highest, BAR_WIDTH), _place(high, lowest, highest, BAR_WIDTH)
        for at in range(first, last + 1):
            cells[at] = "─" if cells[at] == " " else "▒"
    cells[place["y"]] = "●"
    return "".join(cells).rstrip()


def _place(value: float, lowest: float, highest: float, width: int) -> int:
    """Return the position among `width` characters, from 0."""
    if highest <= lowest:
        return 0
    return min(width - 1, max(0, round((value - lowest) / (highest - lowest) * (width - 1))))


def _curves(table: AnswerTable, plot: Plot) -> list[Curve]:
    points_of: dict[str, list[Point]] = {}
    for place, row in enumerate(table.rows):
        numbers = _numbers(table, row, plot)
        if numbers is None:
            continue
        # Bins without a number stand one after another.
        x = _number(table, row, plot.x)
        name = "" if plot.by is None else str(row[table.columns.index(plot.by)])
        points_of.setdefault(name, []).append((float(place) if x is None else x, *numbers))
    return [Curve(name, tuple(sorted(points, key=lambda point: point[0]))) for name, points in points_of.items()]


class _Grid:
    def __init__(self, curves: Sequence[Curve], *, steps: bool) -> None:
        self._curves, self._steps = curves, steps
        points = [point for curve in curves for point in curve.points]
        tall = [y for _, *ys in points for y in ys if y is not None]
        self._min_x, self._max_x = min(x for x, *_ in points), max(x for x, *_ in points)
        self._bottom, self._top = min(0.0, *tall), max(tall)
        self._cells = [[" "] * GRID_WIDTH for _ in range(GRID_HEIGHT)]

    def lines(self, plot: Plot) -> list[str]:
        for curve in self._curves:
            self._draw(curve, self._band)
        for mark, curve in zip(_MARKS * len(self._curves), self._curves, strict=False):
            self._draw(curve, partial(self._put, mark))
        labels = {0: f"{self._top:.4g}", GRID_HEIGHT - 1: f"{self._bottom:.4g}"}
        wide = max(map(len, labels.values()))
        grid_lines = [
            f"{labels.get(row, ''):>{wide}} ┤{''.join(cells).rstrip()}" for row, cells in enumerate(self._cells)
        ]
        first, last = f"{self._min_x:.4g}", f"{self._max_x:.4g}"
        below = f"{first}{plot.x:^{max(0, GRID_WIDTH - len(first) - len(last))}}{last}"
        curve_labels = [
            f"{mark} {curve.name}" for mark, curve in zip(_MARKS * 8, self._curves, strict=False) if curve.name
        ]
        band = [f"{_BAND} 95 % interval"] if plot.low is not None else []
        legend = "   ".join([*curve_labels, *band])
        pad = " " * (wide + 2)
        return [*grid_lines, f"{' ' * wide} └{'─' * GRID_WIDTH}", pad + below, *([pad + legend] if legend else [])]

    def _draw(self, curve: Curve, put: Callable[[int, Point], None]) -> None:
        for column in range(GRID_WIDTH):
            x = self._min_x + (self._max_x - self._min_x) * column / max(1, GRID_WIDTH - 1)
            point = self._at(curve, x)
            if point is not None:
                put(column, point)

    def _at(self, curve: Curve, x: float) -> Point | None:
        """Return the curve at x: for steps the last point up to x, else a point between its neighbours."""
        # Half a character further, so that a step stands at its own place.
        near = x + (self._max_x - self._min_x) / GRID_WIDTH / 2 + math.ulp(abs(x))
        before = [point for point in curve.points if point[0] <= near]
        if not before:
            return None
        last = before[-1]
        after = curve.points[len(before) : len(before) + 1]
        if self._steps or not after:
            return last if self._steps or abs(last[0] - x) <= (self._max_x - self._min_x) / GRID_WIDTH else None
        share = min(1.0, max(0.0, (x - last[0]) / (after[0][0] - last[0])))
        y, low, high = (_between(start, end, share) for start, end in zip(last[1:], after[0][1:], strict=True))
        return None if y is None else (x, y, low, high)

    def _band(self, column: int, point: Point) -> None:
        _, _, low, high = point
        if low is None or high is None:
            return
        for row in range(self._row(high), self._row(low) + 1):
            self._cells[row][column] = _BAND

    def _put(self, mark: str, column: int, point: Point) -> None:
        self._cells[self._row(point[1])][column] = mark

    def _row(self, y: float) -> int:
        return GRID_HEIGHT - 1 - _place(y, self._bottom, self._top, GRID_HEIGHT)


def _between(start: float | None, end: float | None, share: float) -> float | None:
    return None if start is None or end is None else start + (end - start) * share
