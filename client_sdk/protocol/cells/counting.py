"""How many cells of a column fit what is declared: what a hospital sees before it takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from client_sdk.protocol.cells.column import Column


class Reading(Protocol):
    """What was read, as `Numbers` and `Categories` have it."""

    @property
    def missing(self) -> NDArray[np.bool_]: ...
    @property
    def wrong(self) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class CellCounts:
    """Cells of one column under one declaration; for the hospital's own eyes.

    column: its name. cells: in all. missing: empty, a word for missing, or a declared code. wrong: neither a value nor
    a declared code. outside: values outside the declared range or categories. kind: what the first wrong one may be, in
    words that quote nothing of it. first: where it is.
    """

    column: str
    cells: int
    missing: int
    wrong: int
    outside: int
    kind: str = ""
    first: str = ""

    def __add__(self, other: CellCounts) -> CellCounts:
        """Of further cells of the same column."""
        return replace(
            self,
            cells=self.cells + other.cells,
            missing=self.missing + other.missing,
            wrong=self.wrong + other.wrong,
            outside=self.outside + other.outside,
            kind=self.kind or other.kind,
            first=self.first or other.first,
        )


@dataclass(frozen=True)
class Declaration:
    """How one column is read. read: its cells -> what they say, how many of them are outside, what a wrong one is."""

    column: str
    read: Callable[[Column], tuple[Reading, int, str]]

    def count(self, cells: Column, first: Callable[[NDArray[np.bool_]], str]) -> CellCounts:
        """first: where the first of marked rows is."""
        found, outside, kind = self.read(cells)
        wrong = int(found.wrong.sum())
        return CellCounts(
            self.column,
            len(cells),
            int(found.missing.sum()),
            wrong,
            outside,
            kind if wrong else "",
            first(found.wrong) if wrong else "",
        )


def added(parts: Iterable[Iterable[CellCounts]]) -> tuple[CellCounts, ...]:
    """Counts over all parts of a table; each part has the same declarations in the same order."""
    total: list[CellCounts] = []
    for part in parts:
        counts = list(part)
        total = [one + more for one, more in zip(total, counts, strict=True)] if total else counts
    return tuple(total)
