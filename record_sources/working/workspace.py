"""The working database of a snapshot: rows come in by chunks, and every column gets one type."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, cast

import duckdb

from record_sources.errors import SourceError
from record_sources.working.arrow import pa
from record_sources.working.column_types import DUCKDB_TYPES, Kind, TypedColumn
from study_protocol.cells import column_name
from study_protocol.cells.identity import IdentifierError, patient_identity

# A chunk is bounded by its cells, as a wide table fills the memory with fewer rows.
_CHUNK_CELLS = 500_000
_LARGEST_CHUNK = 100_000
# One thread, because the order of sums and ties must not depend on the number of processors.
_SETTINGS = {"memory_limit": "512MB", "threads": 1, "preserve_insertion_order": False}


class RowProgress(Protocol):
    """Takes note of rows that were read.

    Args:
        rows: of this table, so far.
        expected: of this table, in all. None if nobody knows.
        table: its name.
    """

    def __call__(self, rows: int, expected: int | None, table: str) -> None: ...


def no_progress(rows: int, expected: int | None, table: str) -> None:
    """Take no note."""


class Workspace:
    """A DuckDB file in a private folder, as a context manager. It needs little memory and gives rows in any order.

    Attributes:
        connection: for sources that compute with SQL. Tables of `fill` have the names and types that it chose.
    """

    connection: duckdb.DuckDBPyConnection

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        settings: dict[str, Any] = {**_SETTINGS, "temp_directory": str(self._folder / "sorting")}
        self.connection = duckdb.connect(str(self._folder / "work.duckdb"), config=settings)
        # The source's text decides nothing outside of this database.
        self.connection.execute("SET enable_external_access = false")
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def fill(
        self,
        table: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        progress: RowProgress = no_progress,
        *,
        patient: str | None = None,
        expected: int | None = None,
    ) -> int:
        """Make a table of these rows, and return their number.

        Args:
            columns: names of the cells of a row.
            rows: cells as a driver or a workbook gives them, read once and kept nowhere.
            patient: the column that becomes the identity of a patient, always text. None: there is none.
            expected: number of rows, for the progress.

        Raises:
            SourceError: two columns have one name, a column has cells of several kinds or of none that a table can
                hold, or a row has no patient. It counts them over all rows.
        """
        names = _names(table, columns)
        filled = _FilledColumns(names, None if patient is None else _patient(table, names, patient))
        definition = ", ".join(f"{quoted(name)} VARCHAR" for name in names)
        self.connection.execute(f"CREATE TABLE {quoted(table)} ({definition})")
        count = 0
        for chunk in _chunks(rows, max(1, min(_LARGEST_CHUNK, _CHUNK_CELLS // len(names)))):
            cells = zip(names, zip(*chunk, strict=True), strict=True)
            arrays = {name: self._array(table, name, filled, column) for name, column in cells}
            # Reading goes on after a fault, so that the message counts all cells.
            if not filled.faults(count):
                self.insert(table, pa.table(arrays))
            count += len(chunk)
            progress(count, expected, table)
        if faults := filled.faults(count):
            raise SourceError("\n".join(f"table {table}: {fault}" for fault in faults))
        return count

    def types(self, table: str) -> dict[str, str]:
        """Return DuckDB's type of each column, by its name, in their order."""
        rows = self.connection.execute(f"DESCRIBE {quoted(table)}").fetchall()
        return {str(name): str(kind) for name, kind, *_ in rows}

    def insert(self, table: str, batch: Any) -> None:
        """Add the rows of a table of pyarrow, by the names of its columns."""
        self.connection.register("batch", batch)
        try:
            self.connection.execute(f"INSERT INTO {quoted(table)} BY NAME SELECT * FROM batch")  # noqa: S608
        finally:
            self.connection.unregister("batch")

    def _array(self, table: str, name: str, filled: _FilledColumns, cells: Sequence[Any]) -> Any:
        if name == filled.patient:
            return pa.array(filled.identities.of(cells), pa.string())
        column = filled.typed[name]
        before = column.kind
        array = column.take(cells)
        if column.kind != before and not column.fault(name):
            self._widen(table, name, column, before)
        return array

    def _widen(self, table: str, name: str, column: TypedColumn, before: Kind) -> None:
        """Give the stored cells of a column its new type."""
        cell = quoted(name)
        if before == "whole" and column.kind == "number":
            [(inexact,)] = self.connection.execute(
                f"SELECT count(*) FROM {quoted(table)} WHERE abs({cell}::HUGEINT) > {2**53}"  # noqa: S608
            ).fetchall()
            column.inexact += int(inexact)
        self.connection.execute(f"ALTER TABLE {quoted(table)} ALTER {cell} TYPE {DUCKDB_TYPES[column.kind]}")


class _FilledColumns:
    """The columns of a table: the types of their cells so far, and its patients."""

    def __init__(self, names: Sequence[str], patient: str | None) -> None:
        self.patient, self.identities = patient, Identities()
        self.typed = {name: TypedColumn() for name in names if name != patient}

    def faults(self, rows: int) -> list[str]:
        """Return a sentence for each kind of wrong cells in this number of rows."""
        faults = [fault for name, column in self.typed.items() if (fault := column.fault(name))]
        return faults + ([] if self.patient is None else self.identities.sentences(self.patient, rows))


class Identities:
    """Patients of rows as text, and how many rows have none."""

    def __init__(self) -> None:
        self.missing, self.refused = 0, dict[str, int]()

    def of(self, cells: Sequence[Any]) -> list[str | None]:
        """Return the identity of the patient in each cell. Cells without one are counted and become None."""
        identities, are_complete = _identities(cells)
        if are_complete:
            return cast("list[str | None]", identities)
        self._count(identities)
        return [identity if isinstance(identity, str) and identity else None for identity in identities]

    def _count(self, identities: Iterable[str | IdentifierError]) -> None:
        for identity in identities:
            if isinstance(identity, IdentifierError):
                self.refused[str(identity)] = self.refused.get(str(identity), 0) + 1
            elif not identity:
                self.missing += 1

    def sentences(self, column: str, rows: int) -> list[str]:
        """Return one sentence for each kind of cell that names no patient."""
        missing = [f"{self.missing} of {rows} rows have no patient in column {column}. Leave them out in the query"]
        return (missing if self.missing else []) + [
            f"column {column}: {count} of {rows} cells {fault}" for fault, count in self.refused.items()
        ]


def quoted(name: str) -> str:
    """Return a name for DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def _identities(cells: Sequence[Any]) -> tuple[list[str | IdentifierError], bool]:
    """Return the identity in each cell, and whether it is certain that every cell has one."""
    # Few patients stand in many rows of events. By type, because 1 and True are equal.
    keys: Sequence[Any] = cells if len(set(map(type, cells))) < 2 else list(zip(map(type, cells), cells, strict=True))
    try:
        identity_of = {key: _identity(key if keys is cells else key[1]) for key in set(keys)}
    # Lists and structures cannot be looked up.
    except TypeError:
        return list(map(_identity, cells)), False
    are_complete = all(isinstance(identity, str) and identity for identity in identity_of.values())
    return list(map(identity_of.__getitem__, keys)), are_complete


def _identity(cell: Any) -> str | IdentifierError:
    try:
        return patient_identity(cell)
    except IdentifierError as error:
        return error


def _chunks(rows: Iterable[Sequence[Any]], size: int) -> Iterator[list[Sequence[Any]]]:
    remaining = iter(rows)
    while chunk := list(itertools.islice(remaining, size)):
        yield chunk


def _names(table: str, columns: Sequence[str]) -> list[str]:
    names = [column_name(name) for name in columns]
    unnamed = sum(not name.strip() for name in names)
    if unnamed or not names:
        raise SourceError(f"table {table}: {unnamed} columns have no name. Name each one, in SQL with AS")
    # The working database does not tell capitals apart.
    folded = [name.casefold() for name in names]
    repeated = sorted({name for name, key in zip(names, folded, strict=True) if folded.count(key) > 1})
    if repeated:
        raise SourceError(
            f"table {table}: the names {', '.join(repeated)} stand for several columns, or differ only in capitals. "
            "Give each column its own name, in SQL with AS"
        )
    return names


def _patient(table: str, names: Sequence[str], column: str) -> str:
    if column not in names:
        raise SourceError(
            f"table {table}: there is no column {column} with the patient. There are {', '.join(names)}. "
            "Set patient_column, or name the column so"
        )
    return column
