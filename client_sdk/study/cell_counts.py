"""How many cells of a hospital's table a study or a question can use, column by column."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from client_sdk.guard.exclusion import ExclusionList
from private_learning.records import LazyTable, Table
from private_learning.tasks import Task
from private_learning.tasks.columns import Declared, NumberColumn, require_columns
from private_learning.tasks.lacking import with_lacking
from private_learning.tasks.tables import TableTask
from study_protocol.cells import Categories, Column, Numbers, column_name, read_categories, read_numbers
from study_protocol.cells.counting import CellCounts, Declaration, add_counts
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.rows import Reading, readings_of
from study_protocol.queries.variables import Condition, Range, Variable

_LOG = logging.getLogger(__name__)
_CellsRead = tuple[Numbers | Categories, int, str]


def cells_of_task(task: Task, records: Table) -> tuple[CellCounts, ...]:
    """Return the counts of every declared input of a study's task, over all rows, empty for a task without columns.

    Raises:
        DataError: a column lacks, or cannot be read.
    """
    columns: Sequence[Declared] = task.columns if isinstance(task, TableTask) else ()
    return _counts([_input(column) for column in columns], with_lacking(columns, records), "study")


def cells_of_question(question: BaseQuestion, records: Table) -> tuple[CellCounts, ...]:
    """Return the counts of every way in which a question reads a column, over all rows.

    A question counts a cell that is neither a value nor a declared code as missing. A cell that is none of the declared
    categories counts as another value. It is outside, and not wrong.

    Raises:
        DataError: a column lacks, or cannot be read.
    """
    readings = dict.fromkeys(readings_of(question))
    return _counts([_reading(reading) for reading in readings], records, "question")


def without(records: Table, exclusions: ExclusionList) -> Table:
    """The rows of patients whom the list does not leave out."""
    excluded = exclusions.match(records.patients).rows if exclusions else np.zeros(len(records), bool)
    return records.take(np.flatnonzero(~excluded)) if excluded.any() else records


def log_counts(counts: Iterable[CellCounts], subject: str) -> None:
    """To the hospital's own log: how many cells fit nowhere, and which ranges are hardly used."""
    counts = tuple(counts)
    for column_counts in counts:
        for words in (column_counts.unusable, *column_counts.warnings):
            if words:
                _LOG.warning("%s: %s", subject, words)
    if counts and not any(column_counts.wrong for column_counts in counts):
        _LOG.info("%s: every cell of %d columns is a value or a declared code", subject, len(counts))


def _counts(declarations: Sequence[Declaration], records: Table, owner: str) -> tuple[CellCounts, ...]:
    require_columns(
        list(dict.fromkeys(column_name(declaration.column) for declaration in declarations)), records.columns, owner
    )
    return add_counts(
        [declaration.count(part.columns[column_name(declaration.column)], part.first) for declaration in declarations]
        for part in parts_of(records)
    )


def parts_of(records: Table) -> Iterator[Table]:
    """Return a table in parts that fit in memory."""
    return records.parts() if isinstance(records, LazyTable) else iter([records])


def _input(column: Declared) -> Declaration:
    def read(cells: Column) -> _CellsRead:
        values = column.read(cells)
        if isinstance(column, NumberColumn) and isinstance(values, Numbers):
            return values, column.outside(values), values.kind
        return values, 0, "none of the categories"

    # Dates have no unit that could be another.
    within = (column.low, column.high) if isinstance(column, NumberColumn) and not column.dates else None
    return Declaration(column.name, read, within)


def _reading(reading: Reading) -> Declaration:
    def numbers(cells: Column, low: float, high: float) -> _CellsRead:
        numbers_read = read_numbers(cells, reading.missing_values)
        return numbers_read, int(np.sum((numbers_read.values < low) | (numbers_read.values > high))), numbers_read.kind

    def categories(cells: Column, names: Sequence[str]) -> _CellsRead:
        categories_read = read_categories(cells, names, reading.missing_values)
        unmapped = cells.unmapped
        outside = int((categories_read.wrong & ~unmapped).sum()) if names else 0
        column_counts = replace(categories_read, wrong=unmapped)
        return column_counts, outside, "a code that the mapping does not know"

    def read(cells: Column) -> _CellsRead:
        if isinstance(reading, Range):
            return numbers(cells, reading.low, reading.high)
        if isinstance(reading, Variable) and reading.edges is not None:
            return numbers(cells, reading.edges[0], reading.edges[-1])
        if isinstance(reading, Condition) and reading.categories is None:
            # What a condition leaves out is outside nothing.
            return numbers(cells, -np.inf, np.inf)
        return categories(cells, reading.categories or ())

    return Declaration(reading.column, read, (reading.low, reading.high) if isinstance(reading, Range) else None)
