"""How many cells of a column fit what is declared: what a hospital sees before it takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells.column import Column
from study_protocol.cells.reading import Categories

# Of a public range: values that fill no more of it may have another unit or another decimal mark.
_NARROW = 0.02
# Fewer values may well lie close together.
_MIN_VALUES = 3


class Reading(Protocol):
    """The values that were read, as `Numbers` and `Categories` have them."""

    @property
    def missing(self) -> NDArray[np.bool_]: ...
    @property
    def wrong(self) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class CellCounts:
    """Cells of one column under one declaration, for the hospital's own eyes.

    Attributes:
        column: its name.
        cells: number of all cells.
        missing: cells that are empty, a word for missing, or a declared code.
        wrong: cells that are neither a value nor a declared code.
        outside: values outside the declared range or categories.
        kind: words for a possible kind of the first wrong cell, which do not quote it.
        first: the place of the first wrong cell.
        near: cells that differ from a category only in capitals or leading zeros. They are another value.
        filled: the smallest and the largest value as shares of the public range, 0 at its low end and 1 at its high
            end. None without a range or without a value.
    """

    column: str
    cells: int
    missing: int
    wrong: int
    outside: int
    kind: str = ""
    first: str = ""
    near: int = 0
    filled: tuple[float, float] | None = field(default=None, repr=False)

    @property
    def unusable(self) -> str:
        """A warning about cells that do not fit the declaration, with a possible kind of the first of them."""
        if not self.wrong:
            return ""
        kind = f", and is {self.kind}" if self.kind else ""
        return (
            f"column {self.column}: {self.wrong} of {self.cells} cells are neither a value nor a declared code, and "
            f"count as missing. The first is in {self.first}{kind}"
        )

    @property
    def narrow(self) -> str:
        """A warning where several values lie in so little of the public range that their unit may be another."""
        values = self.cells - self.missing - self.wrong
        share = 0.0 if self.filled is None else self.filled[1] - self.filled[0]
        # One value for all may be a rare event that no patient had.
        if values < _MIN_VALUES or not 0 < share <= _NARROW:
            return ""
        return (
            f"column {self.column}: all {values} values lie in {share:.2%} of the public range. Is the unit or the "
            "decimal mark another?"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that a person should read before these cells are used."""
        near = (
            f"column {self.column}: {self.near} of {self.cells} cells are one of the categories but for capitals or "
            "leading zeros, and do not count as it"
        )
        return tuple(words for words in (self.narrow, near if self.near else "") if words)

    def __add__(self, addend: CellCounts) -> CellCounts:
        """Return the counts with those of further cells of the same column."""
        return replace(
            self,
            cells=self.cells + addend.cells,
            missing=self.missing + addend.missing,
            wrong=self.wrong + addend.wrong,
            outside=self.outside + addend.outside,
            kind=self.kind or addend.kind,
            first=self.first or addend.first,
            near=self.near + addend.near,
            filled=_union(self.filled, addend.filled),
        )


@dataclass(frozen=True)
class Declaration:
    """How one column is read.

    Attributes:
        column: its name.
        read: maps cells to their values, the number of values outside, and the kind of a wrong cell.
        within: the public range of its values. None without a range.
    """

    column: str
    read: Callable[[Column], tuple[Reading, int, str]]
    within: tuple[float, float] | None = None

    def count(self, cells: Column, first: Callable[[NDArray[np.bool_]], str]) -> CellCounts:
        """Return the counts of these cells.

        Args:
            first: returns the place of the first of marked rows.
        """
        reading, outside, kind = self.read(cells)
        wrong = int(reading.wrong.sum())
        return CellCounts(
            self.column,
            len(cells),
            int(reading.missing.sum()),
            wrong,
            outside,
            kind if wrong else "",
            first(reading.wrong) if wrong else "",
            int(reading.near.sum()) if isinstance(reading, Categories) and reading.near is not None else 0,
            None if self.within is None else _filled(reading, *self.within),
        )


def _filled(reading: Any, low: float, high: float) -> tuple[float, float] | None:
    present = reading.values[~np.isnan(reading.values)]
    if not len(present) or not np.isfinite(high - low):
        return None
    return float((present.min() - low) / (high - low)), float((present.max() - low) / (high - low))


def _union(left_ends: tuple[float, float] | None, right_ends: tuple[float, float] | None) -> tuple[float, float] | None:
    if left_ends is None or right_ends is None:
        return left_ends or right_ends
    return min(left_ends[0], right_ends[0]), max(left_ends[1], right_ends[1])


def add_counts(parts: Iterable[Iterable[CellCounts]]) -> tuple[CellCounts, ...]:
    """Return the counts over all parts of a table. Each part has the same declarations in the same order."""
    total: list[CellCounts] = []
    for part in parts:
        counts = list(part)
        total = [count + more for count, more in zip(total, counts, strict=True)] if total else counts
    return tuple(total)
