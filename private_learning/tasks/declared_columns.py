"""One column of a table as a study declares it: the values of its cells, and the numbers that they become."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from private_learning.records import WrongRows
from private_learning.tasks.task import InputUse
from study_protocol.cells import (
    Categories,
    Column,
    Numbers,
    column_of,
    read_categories,
    read_days,
    read_numbers,
)

# Names of categories in a message, at most.
_LISTED = 10

# How far a bound may lie from the middle of the typical range, in halves of it: beyond, it is a slip of the pen.
_FARTHEST = 1000.0

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Trend = Literal["increasing", "decreasing"]


@dataclass(frozen=True)
class DeclaredColumn(ABC):
    """One input of a study, and its encoding of cells.

    may_lack: a table without the column is read as one whose cells are all empty.
    unmapped_is_missing: a code that the hospital's mapping does not know is missing, and no fault.
    """

    name: str
    may_lack: bool = field(default=False, kw_only=True)
    unmapped_is_missing: bool = field(default=False, kw_only=True)

    def cells(self, values: Any) -> Column:
        """Return the (n,) cells as they are read."""
        column = column_of(values, name=self.name)
        return column.with_unmapped_missing() if self.unmapped_is_missing else column

    @property
    @abstractmethod
    def width(self) -> int:
        """Return how many numbers stand for one cell."""

    @abstractmethod
    def read(self, values: Any) -> Any:
        """Return the values of the cells: `Numbers` or `Categories`."""

    @abstractmethod
    def encoded(self, read: Any) -> Floats:
        """Return (n, width) finite numbers of the values of the cells. They depend on the public description alone.

        A cell without a declared value counts as missing. Where none may be missing, it becomes zeros: the middle of a
        number's range, and none of the categories.
        """

    @abstractmethod
    def faults(self, read: Any) -> list[Fault]:
        """Return cells that are neither values nor declared codes, and missing ones where none may be."""

    def encode(self, values: Any) -> Floats:
        """Return (n, width) numbers of (n,) cells. Raises WrongRows: the first of the faults."""
        read = self.read(values)
        for fault in self.faults(read):
            raise fault.error
        return self.encoded(read)

    def use(self, values: Any) -> InputUse:
        """Return how many of the values are missing, and how many lie outside the range."""
        read = self.read(values)
        counts = (int(read.missing.sum()), self.outside(read), int(read.wrong.sum()))
        return InputUse(self.name, len(read.missing), missing=counts[0], clipped=counts[1], wrong=counts[2])

    def outside(self, read: Any) -> int:
        """Return how many values lie outside the range."""
        return 0


@dataclass(frozen=True)
class Fault:
    """Cells that a study cannot use.

    subject: the column. problem: with the cells. of_first: the kind of the first one.
    """

    subject: str
    problem: str
    rows: Mask
    of_first: str = ""

    def text(self, count: int, cells: int) -> str:
        """Return the fault in words, of so many cells."""
        return f"{self.subject}: {count} of {cells} values {self.problem}"

    @property
    def error(self) -> WrongRows:
        return WrongRows(self.text(int(self.rows.sum()), len(self.rows)), self.rows, self.of_first)


@dataclass(frozen=True)
class NumberColumn(DeclaredColumn):
    """A number in the public range low … high.

    missing: the number that stands in for a missing one. None where none may be missing.
    dates: low, high, missing and typical are days since 1 January 1970, and the cells are dates.
    typical: the part of the range that becomes -1 … 1. None: all of it.
    log: the logarithm of `offset` + number is scaled, and not the number.
    trend: how the curve of an additive model must run. None: as the records say.
    """

    low: float
    high: float
    missing: float | None
    missing_values: tuple[str, ...] = ()
    dates: bool = False
    typical: tuple[float, float] | None = None
    log: bool = False
    trend: Trend | None = None

    @property
    def width(self) -> int:
        return 1 if self.missing is None else 2

    @property
    def spread(self) -> tuple[float, float]:
        """Return the two numbers that become -1 and 1."""
        return self.typical or (self.low, self.high)

    @property
    def offset(self) -> float:
        """Return what is added before the logarithm: 0 where every number of the range has one.

        Otherwise the logarithm is of the distance to low, and of a public length more: how far typical begins from low,
        or a tenth of typical where it begins there, or a hundredth of the range without typical.
        """
        if self.low > 0:
            return 0.0
        if self.typical is None:
            return self.high / 100 - self.low / 100 - self.low
        first, last = self.typical
        return (first - self.low or (last - first) / 10) - self.low

    def read(self, values: Any) -> Numbers:
        return (read_days if self.dates else read_numbers)(self.cells(values), self.missing_values)

    def encoded(self, read: Numbers) -> Floats:
        """Return the scaled number, and 1 for a missing one where it may be missing."""
        absent = np.isnan(read.values)
        if self.missing is None:
            return np.where(absent, 0.0, self.scaled(read.values))[:, None]
        scaled = self.scaled(np.where(absent, self.missing, read.values))
        return np.stack([scaled, absent.astype(np.float64)], axis=1)

    def scaled(self, values: Floats) -> Floats:
        """Return (n,) numbers of (n,) in their order. They lie between those of low and high."""
        clipped = np.clip(values, self.low, self.high)
        middle, half = self.middle_and_half
        return ((np.log(clipped + self.offset) if self.log else clipped) - middle) / half

    @property
    def middle_and_half(self) -> tuple[float, float]:
        """Return what is subtracted from a clipped number, or its logarithm, and what it is divided by then."""
        first, last = (float(np.log(end + self.offset)) if self.log else end for end in self.spread)
        # Halved before the difference, so that public bounds near the largest float do not overflow.
        return first / 2 + last / 2, last / 2 - first / 2

    @property
    def is_near(self) -> bool:
        """Return whether both bounds become finite numbers of at most 1,000."""
        with np.errstate(all="ignore"):
            return bool((np.abs(self.scaled(np.array([self.low, self.high]))) <= _FARTHEST).all())

    def faults(self, read: Numbers) -> list[Fault]:
        problem = "are no dates" if self.dates else "are no numbers"
        wrong = Fault(f"column {self.name}", problem, known_wrong(read), f"is {read.kind}")
        unmapped = unmapped_codes(f"column {self.name}", read)
        return _present([wrong, unmapped, *([_absent(self.name, read.missing)] if self.missing is None else [])])

    def outside(self, read: Numbers) -> int:
        return int(np.sum((read.values < self.low) | (read.values > self.high)))

    def random(self, count: int, generator: np.random.Generator) -> Column:
        """Return (count,) values of the typical range. Where they may be missing, one in four is."""
        values = generator.uniform(0.0, 1.0, count)
        values = self.spread[0] * (1 - values) + self.spread[1] * values
        absent = generator.uniform(size=count) < 0.25
        if self.dates:
            days = values.astype(np.int64).astype("datetime64[D]")
            return column_of(days if self.missing is None else np.where(absent, np.datetime64("NaT"), days))
        return column_of(values if self.missing is None else np.where(absent, math.nan, values))


@dataclass(frozen=True)
class CategoryColumn(DeclaredColumn):
    """One of the public categories.

    missing: whether it may lack. shares: of the categories, of sum 1, or none: what is subtracted from the indicators.
    """

    categories: tuple[str, ...]
    missing: bool
    missing_values: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        return len(self.categories) + self.missing

    def read(self, values: Any) -> Categories:
        return read_categories(self.cells(values), self.categories, self.missing_values)

    def encoded(self, read: Categories) -> Floats:
        """Return indicators, less the shares where the value is known. The last is 1 where it may be missing and is."""
        absent = read.places[:, None] < 0
        hits = (read.places[:, None] == np.arange(len(self.categories))).astype(np.float64)
        if self.shares:
            hits -= np.where(absent, 0.0, self.shares)
        return np.concatenate([hits, absent.astype(np.float64)], axis=1) if self.missing else hits

    def faults(self, read: Categories) -> list[Fault]:
        wrong = unknown_names(f"column {self.name}", "categories", self.categories, read)
        unmapped = unmapped_codes(f"column {self.name}", read)
        return _present([wrong, unmapped, *([] if self.missing else [_absent(self.name, read.missing)])])

    def random(self, count: int, generator: np.random.Generator) -> Column:
        """Return (count,) categories, and empty cells among them where they may lack."""
        choices = [*self.categories, *([None] if self.missing else [])]
        return Column.of_words(generator.integers(len(choices), size=count), choices)


Declared = NumberColumn | CategoryColumn


def _present(faults: list[Fault]) -> list[Fault]:
    return [fault for fault in faults if fault.rows.any()]


def _absent(name: str, missing: Mask) -> Fault:
    return Fault(f"column {name}", "are missing, and the study allows none", missing)


def known_wrong(read: Numbers | Categories) -> Mask:
    """Return (n,) which cells are wrong although no mapping says that it does not know their code."""
    return read.wrong if read.unmapped is None else read.wrong & ~read.unmapped


def unmapped_codes(subject: str, read: Numbers | Categories) -> Fault:
    """Return the fault of cells whose code the hospital's mapping does not know."""
    return Fault(subject, "have a code that the mapping does not know", read.wrong & ~known_wrong(read))


def unknown_names(subject: str, kind: str, names: Sequence[str], read: Categories) -> Fault:
    """Return the fault of cells that are none of the declared names."""
    listed = f" {'|'.join(names)}" if len(names) <= _LISTED else ""
    near = read.near is not None and bool(read.near[int(np.argmax(known_wrong(read)))])
    of_first = "is one of them but for capitals or leading zeros" if near else ""
    return Fault(subject, f"are none of the study's {kind}{listed}", known_wrong(read), of_first)
