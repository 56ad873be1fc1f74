"""What a study or a question makes of a hospital's columns: counts for the hospital alone, which never leave it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from client_sdk.data import Table
from client_sdk.protocol.cells import Column, column_name, read_categories, read_numbers, read_presence
from client_sdk.protocol.statistics.question import BaseQuestion
from client_sdk.protocol.statistics.rows import Reading, readings_of
from client_sdk.protocol.statistics.variables import Range, Variable
from client_sdk.protocol.study.any_settings import AnySettings
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.tasks import TaskError
from client_sdk.tasks.columns import NumberColumn, read_columns

_LOG = logging.getLogger(__name__)
# Of a public range: values that fill no more of it may have another unit or another decimal mark.
NARROW = 0.02
# Fewer values may well lie close together.
_SEVERAL = 3


@dataclass(frozen=True)
class ColumnUse:
    """One column as a study or a question reads it, over all rows of patients who are not left out.

    cells: in all. missing: empty, or a declared code. wrong: neither a value nor a declared code. outside: of the
    range, or none of the categories. filled: share of the public range that all values lie in; None: it has no range.
    """

    column: str
    cells: int
    missing: int
    wrong: int
    outside: int = 0
    filled: float | None = None

    @property
    def is_narrow(self) -> bool:
        """Do several different values lie in so small a part of the public range that their unit may be another?"""
        values = self.cells - self.missing - self.wrong
        return self.filled is not None and 0 < self.filled <= NARROW and values >= _SEVERAL

    @property
    def narrow_words(self) -> str:
        """The warning, which quotes no value."""
        return (
            f"column {self.column}: all values lie in {self.filled or 0:.2%} of the public range. Is the unit or the "
            "decimal mark another?"
        )


def uses_of_question(question: BaseQuestion, records: Table) -> tuple[ColumnUse, ...]:
    """Of every column that the question reads, one for each way of reading it. Columns that lack are left out."""
    readings = {repr(reading): reading for reading in readings_of(question)}.values()
    present = [reading for reading in readings if column_name(reading.column) in records.columns]
    return tuple(_use(reading, records.columns[column_name(reading.column)]) for reading in present)


def uses_of_training(parameters: Mapping[str, object], records: Table) -> tuple[ColumnUse, ...]:
    """Of every input column (`column.<name>`) that a task declares. Columns that lack are left out."""
    try:
        declared = read_columns(parameters)
    # The task has no such columns, or describes them in a way of its own.
    except TaskError:
        return ()
    uses: list[ColumnUse] = []
    for one in (one for one in declared if one.name in records.columns):
        read = one.read(records.columns[one.name])
        filled = None
        if isinstance(one, NumberColumn) and not one.dates:
            filled = _share_filled(one.read(records.columns[one.name]).values, one.low, one.high)
        counts = len(read.missing), int(read.missing.sum()), int(read.wrong.sum()), one.outside(read)
        uses.append(ColumnUse(one.name, *counts, filled))
    return tuple(uses)


def uses_of_study(settings: AnySettings, records: Table) -> tuple[ColumnUse, ...]:
    """Of every column that the settings name: those of the training, and those of the scheduled question."""
    uses: tuple[ColumnUse, ...] = ()
    if isinstance(settings, StudySettings):
        uses = uses_of_training(settings.training.task_parameters, records)
        if settings.evaluation is not None and settings.evaluation.question is not None:
            uses += uses_of_question(settings.evaluation.question, records)
    return uses


def without(records: Table, excluded: Collection[str]) -> Table:
    """The rows of patients who are not on the list."""
    gone = set(excluded)
    if not gone.intersection(records.patients):
        return records
    return records.take([row for row, patient in enumerate(records.patients) if patient not in gone])


def log_uses(uses: Iterable[ColumnUse], what: str) -> None:
    """To the hospital's own log: how many cells fit nowhere, and which ranges are hardly used."""
    uses = tuple(uses)
    for use in uses:
        if use.wrong:
            _LOG.warning(
                "%s: column %s: %d of %d cells are neither a value nor a declared code, and count as missing",
                *(what, use.column, use.wrong, use.cells),
            )
        if use.is_narrow:
            _LOG.warning("%s: %s", what, use.narrow_words)
    if uses and not any(use.wrong for use in uses):
        _LOG.info("%s: every cell of its %d columns is a value or a declared code", what, len(uses))


def _use(reading: Reading, column: Column) -> ColumnUse:
    name, codes = column_name(reading.column), reading.missing_values
    if isinstance(reading, Variable) and reading.edges is None and reading.categories is None:
        return ColumnUse(name, len(column), int(read_presence(column, codes).sum()), 0)
    if not isinstance(reading, Range) and reading.categories is not None:
        read = read_categories(column, reading.categories, codes)
        # Other values have a place of their own in the answer.
        return ColumnUse(name, len(column), int(read.missing.sum()), 0, int(read.wrong.sum()))
    numbers = read_numbers(column, codes)
    counts = len(column), int(numbers.missing.sum()), int(numbers.wrong.sum())
    if not isinstance(reading, Range):
        return ColumnUse(name, *counts)
    outside = int(np.sum((numbers.values < reading.low) | (numbers.values > reading.high)))
    return ColumnUse(name, *counts, outside, _share_filled(numbers.values, reading.low, reading.high))


def _share_filled(values: NDArray[np.float64], low: float, high: float) -> float | None:
    """The share of [low, high] between the smallest and the largest value; None: there is no value, or no range."""
    present = values[~np.isnan(values)]
    if not len(present) or not np.isfinite(high - low):
        return None
    return float((present.max() - present.min()) / (high - low))
