"""A figure: how its numbers are made, how they are drawn, what stands below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from research.figures.table import Points


@dataclass(frozen=True)
class Axis:
    """One axis of a panel; `low` and `high`: what is shown, None: all."""

    title: str
    scale: Literal["linear", "log"] = "linear"
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Figure:
    """One figure of the thesis.

    number   as printed there
    compute  the points; may need data of WARDROUND_DATA
    axes     panel -> (x, y); the panel "" stands for all that are not named
    caption  plain sentences, from the points: what is computed, what is certified
    data     which data set it needs; None: none
    aside    panels of numbers that the caption alone reads
    """

    number: str
    title: str
    compute: Callable[[], Points]
    axes: dict[str, tuple[Axis, Axis]]
    caption: Callable[[Points], str]
    columns: int = 2
    data: str | None = None
    aside: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Of its files."""
        return f"figure-{self.number}"

    def axes_of(self, panel: str) -> tuple[Axis, Axis]:
        """(x, y) of one panel."""
        return self.axes.get(panel) or self.axes[""]
