"""One entry of a hospital's mapping: the cells of a study's column out of those of a local column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study_protocol.cells import MISSING, UNDATED, UNMAPPED, Column, read_categories, read_days, read_numbers
from study_protocol.cells import read_presence as is_missing
from study_protocol.cells.spelling import POINTS, days_in, number_text

_Mask = NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class MappedCells:
    """The cells of one mapped column.

    Attributes:
        column: (n,) cells.
        missing: (n,) whether the cell is empty, a word for missing or a code of `missing`.
        unmapped: (n,) whether its code is unknown, or it is no number or date where one is needed.
    """

    column: Column
    missing: _Mask
    unmapped: _Mask


@dataclass(frozen=True, repr=False)
class ColumnMapping:
    """How one column of the study is made.

    Attributes:
        column: the study's name.
        local: the hospital's name.
        codes: local code -> the study's. None: codes stay.
        missing: local codes that say missing, in the columns `local` and `days_from`. A code that is a date or, before
            a change of unit, a number is compared as one.
        multiply, add: a number x becomes (x + add) * multiply. Both None: cells stay.
        days_from: the local column with the date from which days are counted. Empty: cells stay.
    """

    column: str
    local: str
    codes: Mapping[str, str] | None = None
    missing: tuple[str, ...] = ()
    multiply: float | None = None
    add: float | None = None
    days_from: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the names of all local columns that the cells come from."""
        return (self.local, self.days_from) if self.days_from else (self.local,)

    @property
    def action(self) -> str:
        """Return what the mapping does with a cell, in words without its codes."""
        actions = [] if self.column == self.local else ["renamed"]
        actions += [] if self.codes is None else [_counted(len(self.codes), "code")]
        actions += [] if self.add is None else [f"{self.add:+g}"]
        actions += [] if self.multiply is None else [f"times {self.multiply:g}"]
        actions += [f"days from {self.days_from}"] if self.days_from else []
        actions += [_counted(len(self.missing), "missing code")] if self.missing else []
        return ", ".join(actions)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as JSON, of which the digest is taken."""
        return {
            "column": self.column,
            "local": self.local,
            "codes": None if self.codes is None else dict(self.codes),
            "missing": sorted(self.missing),
            # As text: one form for 18 and 18.0, and every digit.
            "multiply": repr(1.0 if self.multiply is None else self.multiply),
            "add": repr(0.0 if self.add is None else self.add),
            "days_from": self.days_from,
        }

    def apply(self, cells: Column, index: Column | None = None) -> MappedCells:
        """Return the mapped cells of (n,) local ones. index: (n,) cells of the column of `days_from`."""
        local = self._emptied(cells)
        if self.codes is not None:
            return self._coded(local, self.codes)
        if index is not None:
            return self._days(local, self._emptied(index))
        if self.multiply is not None or self.add is not None:
            return self._scaled(local)
        return MappedCells(_named_cells(local, self.column), is_missing(local), np.zeros(len(local), bool))

    def _emptied(self, cells: Column) -> Column:
        """Return the cells without those that are a code of `missing`."""
        empty = read_categories(cells, self.missing).places >= 0
        if not set(self.missing) <= MISSING:
            for missing in self._readings():
                empty |= missing(cells, self.missing) & ~missing(cells, ())
        return cells.emptied(empty)

    def _readings(self) -> Iterator[Callable[[Column, tuple[str, ...]], _Mask]]:
        """Yield what the codes of `missing` are compared as, beside categories, so that no form of storage matters."""
        # A stored number at its own precision.
        yield is_missing
        # A day with a time of midnight, or with its year last, is this day.
        if self.codes is None and any(days_in(code, POINTS) is not None for code in self.missing):
            yield lambda cells, codes: read_days(cells, codes).missing
        if self.multiply is not None or self.add is not None:
            yield lambda cells, codes: read_numbers(cells, codes).missing

    def _coded(self, cells: Column, codes: Mapping[str, str]) -> MappedCells:
        read = read_categories(cells, tuple(codes))
        words = [*codes.values(), None, UNMAPPED]
        places = np.where(read.missing, len(codes), np.where(read.wrong, len(codes) + 1, read.places))
        return MappedCells(_of_words(places, words, self.column), read.missing, read.wrong)

    def _scaled(self, cells: Column) -> MappedCells:
        read = read_numbers(cells)
        with np.errstate(over="ignore"):
            values = (read.values + (self.add or 0.0)) * (1.0 if self.multiply is None else self.multiply)
        if not read.wrong.any():
            return MappedCells(Column(values, None, None, cells.spelling, self.column), read.missing, read.wrong)
        # A text that is no number stays as it is, and the study counts and refuses it.
        texts = [
            text if is_wrong else None if is_empty else number_text(value, cells.spelling)
            for text, value, is_wrong, is_empty in zip(
                cells.as_texts.tolist(), values.tolist(), read.wrong.tolist(), read.missing.tolist(), strict=True
            )
        ]
        return MappedCells(Column.of_texts(texts, cells.spelling, self.column), read.missing, read.wrong)

    def _days(self, cells: Column, index: Column) -> MappedCells:
        dates, starts = read_days(cells), read_days(index)
        missing, wrong = dates.missing | starts.missing, dates.wrong | starts.wrong
        wrong &= ~missing
        # Calendar days: a time of day does not count.
        days = np.floor(dates.values) - np.floor(starts.values)
        if not wrong.any():
            return MappedCells(Column(days, None, None, cells.spelling, self.column), missing, wrong)
        # A text that is no date could pass for a number of days.
        each, places = np.unique(np.where(missing | wrong, 0.0, days), return_inverse=True)
        words = [*(number_text(day, POINTS) for day in each.tolist()), None, UNDATED]
        places = np.where(missing, len(each), np.where(wrong, len(each) + 1, places))
        return MappedCells(_of_words(places, words, self.column), missing, wrong)


def _of_words(places: NDArray[np.int64], words: list[str | None], name: str) -> Column:
    """Return a column of these words as they are: those of the mapping's own would be cleaned."""
    return Column(places.astype(np.int32), np.array(words, dtype=object), None, POINTS, name)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _named_cells(cells: Column, name: str) -> Column:
    return Column(cells.values, cells.words, cells.absent, cells.spelling, name)
