"""What a study or a question makes of a hospital's columns: counts for the hospital alone, which never leave it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from client_sdk.data import Table
from client_sdk.protocol.cells import Categories, Column, Numbers, column_name, read_categories, read_numbers
from client_sdk.protocol.cells import read_presence
from client_sdk.protocol.statistics.question import BaseQuestion
from client_sdk.protocol.statistics.rows import Reading, readings_of
from client_sdk.protocol.statistics.variables import Condition, Indicator, Range, Variable

_LOG = logging.getLogger(__name__)
# Of a public range: values that fill no more of it may have another unit or another decimal mark.
NARROW = 0.02
# So many values may well lie close together.
_FEW = 3


@dataclass(frozen=True)
class ColumnUse:
    """One column as a study or a question reads it, over all rows.

    cells: in all. missing: empty, or a declared code. wrong: neither a value nor a declared code. outside: of the
    range, or none of the categories. filled: share of the public range that all values lie in; None: it has no range.
    """

    column: str
    cells: int
    missing: int
    wrong: int
    outside: int
    filled: float | None = None

    @property
    def is_narrow(self) -> bool:
        """Do all values lie in so small a part of the public range that its unit may be another?"""
        return self.filled is not None and self.filled <= NARROW and self.cells - self.missing - self.wrong >= _FEW


def uses_of(question: BaseQuestion, records: Table) -> tuple[ColumnUse, ...]:
    """Of every column that the question reads, one for each way of reading it. Columns that lack are left out."""
    found: dict[tuple[str, str], ColumnUse] = {}
    for reading in readings_of(question):
        name = column_name(reading.column)
        if name in records.columns:
            found.setdefault((name, repr(reading)), _use(name, reading, records.columns[name]))
    return tuple(dict.fromkeys(found.values()))


def lacking(question: BaseQuestion, records: Table) -> tuple[str, ...]:
    """Columns that the question reads and the table has not."""
    return tuple(name for name in question.columns if column_name(name) not in records.columns)


def share_filled(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]], low: float, high: float) -> float:
    """The share of [low, high] that lies between the smallest and the largest value, NaN left out; 1 for no value."""
    present = np.asarray(values)[~np.isnan(values)]
    if not len(present):
        return 1.0
    return float((present.max() - present.min()) / (high - low))


def warn_of(uses: Iterator[ColumnUse] | Sequence[ColumnUse], what: str) -> None:
    """In the hospital's own log: cells that fit nowhere, and ranges that are hardly used."""
    for use in uses:
        if use.wrong:
            _LOG.warning(
                "%s: column %s: %d of %d cells are neither a value nor a declared code, and count as missing",
                *(what, use.column, use.wrong, use.cells),
            )
        if use.is_narrow:
            _LOG.warning("%s: %s", what, narrow_words(use))


def narrow_words(use: ColumnUse) -> str:
    """A warning that quotes no value."""
    return (
        f"column {use.column}: all values lie within {use.filled or 0:.2%} of the public range: is the unit or the decimal "
        "mark another?"
    )


def _use(name: str, reading: Reading, column: Column) -> ColumnUse:
    if isinstance(reading, Variable) and reading.edges is None and reading.categories is None:
        missing = int(read_presence(column, reading.missing_values).sum())
        return ColumnUse(name, len(column), missing, 0, 0)
    if isinstance(reading, Variable | Indicator | Condition) and reading.categories is not None:
        read = read_categories(column, reading.categories, reading.missing_values)
        # Other values than the listed ones have a cell of their own, or count as 0.
        return ColumnUse(name, len(column), int(read.missing.sum()), 0, int(read.wrong.sum()))
    numbers = read_numbers(column, reading.missing_values)
    outside, filled = 0, None
    if isinstance(reading, Range):
        outside = int(np.sum((numbers.values < reading.low) | (numbers.values > reading.high)))
        filled = share_filled(numbers.values, reading.low, reading.high)
    return ColumnUse(name, len(column), int(numbers.missing.sum()), int(numbers.wrong.sum()), outside, filled)
