"""A figure's numbers: one row for each point, in a CSV file whose digest the drawing carries."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from accounting.values import rounded_up


@dataclass(frozen=True)
class Point:
    """One point of one curve in one panel. x and y are finite: what is infinite is left out and said in the caption."""

    panel: str
    curve: str
    x: float
    y: float


Points = Sequence[Point]
_COLUMNS = ("panel", "curve", "x", "y")


def curve(panel: str, name: str, xs: Iterable[float], ys: Iterable[float]) -> list[Point]:
    """The points of one curve to six digits, which is how they are stored; y upwards, as a certified one must be."""
    pairs = zip(xs, ys, strict=True)
    return [Point(panel, name, float(f"{x:.6g}"), rounded_up(float(y), 6)) for x, y in pairs if abs(y) < float("inf")]


def write(path: Path, points: Points) -> None:
    """Replace the file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows((p.panel, p.curve, f"{p.x:.6g}", f"{p.y:.6g}") for p in points)


def read(path: Path) -> list[Point]:
    """Inverse of `write`. Raises ValueError for a file with other columns."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        if tuple(next(rows, ())) != _COLUMNS:
            raise ValueError(f"{path} is no figure's table: its columns must be {', '.join(_COLUMNS)}")
        return [Point(panel, name, float(x), float(y)) for panel, name, x, y in rows]


def digest(path: Path) -> str:
    """SHA-256 of the file, hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def panels(points: Points) -> list[str]:
    """In their order."""
    return list(dict.fromkeys(point.panel for point in points))


def at(points: Points, panel: str, name: str) -> dict[float, float]:
    """x -> y of one curve.

    Raises:
        KeyError: there is no such curve.
    """
    value_by_x = {point.x: point.y for point in points if (point.panel, point.curve) == (panel, name)}
    if not value_by_x:
        raise KeyError(f"no curve {name!r} in panel {panel!r}")
    return value_by_x


def last(points: Points, panel: str, name: str) -> float:
    """y at the largest x of one curve."""
    values = at(points, panel, name)
    return values[max(values)]


def certified(epsilon: float, digits: int = 3) -> str:
    """A certified ε as a caption says it: upwards."""
    return f"{rounded_up(epsilon, digits):g}"
