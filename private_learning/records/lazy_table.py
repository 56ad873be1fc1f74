"""Tables that need not fit in memory. Patients are in memory, and columns are read from their files on demand."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from private_learning.records.lazy import ReadBy
from private_learning.records.records import Array, DataError, Table, empty_column, identifiers, require_patient_column
from private_learning.records.row_groups import SUFFIXES, Kind, OpenFiles, Parts, parts_of
from study_protocol.cells import AS_WRITTEN, Column, Spelling, column_name
from study_protocol.cells.digest import digest_of

# Bytes of decoded columns of row groups in the cache of one table.
ROOM = 1 << 27
# Rows that are taken at once if all are needed in order.
PART_ROWS = 1 << 16
# Approximate bytes of one text cell in memory.
_TEXT_BYTES = 64


class StoredColumns(Protocol):
    """The stored columns of a table. Several threads read them at once."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns except that of the patients."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def read(self, name: str, rows: Array) -> Column:
        """Return the cells of one column, (k,) in the order of the rows, as in `Table.columns`.

        Raises:
            DataError: the cells cannot be read any more.
        """
        ...

    @property
    def row_bytes(self) -> int:
        """Return the approximate bytes of one row of all columns in memory."""
        ...

    def place(self, row: int) -> str:
        """Return the place of a row in words."""
        ...


@dataclass(frozen=True, repr=False)
class _View(Mapping[str, Column]):
    """Columns of some rows. Each is read on every access and not kept. hidden: names of columns that are left out."""

    stored: StoredColumns
    rows: Array
    hidden: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Column:
        if name not in self:
            raise KeyError(name)
        return self.stored.read(name, self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.stored.names and name not in self.hidden

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.stored.names if name not in self.hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, repr=False)
class LazyTable(Table):
    """A `Table` with columns that are read on demand, row group by row group. Made by `list_table`.

    The value of a cell does not depend on the rows that are read with it.
    """

    columns: _View

    read_by: ClassVar[ReadBy] = "threads"
    at_once: ClassVar[int] = 1 << 14

    def without_columns(self, names: Collection[str]) -> LazyTable:
        return replace(self, columns=replace(self.columns, hidden=self.columns.hidden | frozenset(names)))

    def with_empty_columns(self, names: Collection[str]) -> Self:
        if not names:
            return self
        stored = _WithEmpty(self.columns.stored, tuple(names))
        return replace(self, columns=replace(self.columns, stored=stored, hidden=self.columns.hidden - {*names}))

    def take(self, rows: Sequence[int] | Array) -> LazyTable:
        """Return the given rows, in the given order, without reading columns."""
        index = np.asarray(rows, dtype=np.int64)
        patients = tuple(map(self.patients.__getitem__, index.tolist()))
        return replace(self, columns=replace(self.columns, rows=self.columns.rows[index]), patients=patients)

    # Columns are read on access, so `LazyInputs` handles both kinds of records alike.
    read = take

    def parts(self) -> Iterator[LazyTable]:
        """Yield all rows, PART_ROWS at a time."""
        for start in range(0, len(self), PART_ROWS):
            yield self.take(range(start, min(start + PART_ROWS, len(self))))

    def digest(self) -> str:
        return digest_of(self.parts(), self.columns, with_patients=self.named)

    def first(self, mask: Array) -> str:
        return self.columns.stored.place(int(self.columns.rows[int(np.argmax(mask))]))

    @property
    def bytes(self) -> int:
        """Return the approximate bytes of all columns in memory."""
        return len(self) * self.columns.stored.row_bytes

    def in_memory(self) -> Table:
        """Return the whole table in memory, as from `Table.of`. Raises DataError: a column cannot be read."""
        columns = dict(self.columns.items())
        return Table(
            columns,
            self.patients,
            self.named,
            format=self.format,
            declared=self.declared,
            mapping=self.mapping,
        )


class Stored:
    """Files of one table, with their rows in order and a bounded cache of decoded columns.

    Raises:
        DataError: a file is faulty, the files have different columns, or they have no row.
    """

    def __init__(self, paths: Sequence[Path], room: int = ROOM, spelling: Spelling = AS_WRITTEN) -> None:
        left_open = OpenFiles()
        files = [parts_of(path, left_open, spelling) for path in paths]
        self._kinds = _kinds(files)
        self._parts = [(file, part) for file in files for part, rows in enumerate(file.rows) if rows]
        self._starts = np.cumsum([0, *(file.rows[part] for file, part in self._parts)])
        self._file_rows = np.cumsum([0, *(sum(file.rows) for file in files)])
        if len(self) == 0:
            raise DataError("the table has no rows")
        self._room, self.names = room, tuple(self._kinds)
        self._begin()

    def _begin(self) -> None:
        """Start with an empty cache."""
        self._cache, self._bytes = dict[tuple[int, str], Column](), 0
        self._lock, self._locks = threading.Lock(), dict[tuple[int, str], threading.Lock]()
        self._draw = np.random.default_rng(0)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which reads by itself."""
        process_state = ("_cache", "_bytes", "_lock", "_locks", "_draw")
        return {name: value for name, value in vars(self).items() if name not in process_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def patients(self, name: str) -> tuple[str, ...]:
        """Return the patients of the rows. Their column is then no longer part of the table.

        Raises:
            DataError: there is no such column, or a row has no patient.
        """
        require_patient_column(name, self._kinds)
        self.names = tuple(column for column in self.names if column != name)
        # As written: as numbers, long identifiers would lose their last digits.
        cells = (cell for file, part in self._parts for cell in file.identifiers(part, name))
        return identifiers(cells, len(self))

    @property
    def row_bytes(self) -> int:
        """Return the approximate bytes of one row of all columns in memory."""
        return sum(_TEXT_BYTES if self._kinds[name] == "text" else 8 for name in self.names)

    def read(self, name: str, rows: Array) -> Column:
        part_numbers = np.searchsorted(self._starts, rows, side="right") - 1
        if not len(rows):
            return self._cells(0, name).take([])
        order = np.argsort(part_numbers, kind="stable")
        parts, begins = np.unique(part_numbers[order], return_index=True)
        places = np.split(order, begins[1:])
        each = [
            self._cells(part, name).take(rows[positions] - self._starts[part])
            for part, positions in zip(parts.tolist(), places, strict=True)
        ]
        return _gathered(each, places)

    def place(self, row: int) -> str:
        file = int(np.searchsorted(self._file_rows, row, side="right")) - 1
        files = len(self._file_rows) - 1
        return f"row {row - int(self._file_rows[file]) + 1}" + (f" of file {file + 1} of {files}" if files > 1 else "")

    def _cells(self, part: int, name: str) -> Column:
        key = part, name
        with self._lock:
            part_lock = self._locks.setdefault(key, threading.Lock())
        # Two threads that need the same column wait for one read.
        with part_lock:
            if (cached := self._cache.get(key)) is not None:
                return cached
            file, place = self._parts[part]
            cells = file.cells(place, name)
            self._keep(key, cells)
        return cells

    def _keep(self, key: tuple[int, str], cells: Column) -> None:
        size = cells.bytes
        if size > self._room:
            return
        with self._lock:
            # At random: a step reads all row groups in order, so the oldest is always needed next.
            while self._bytes + size > self._room:
                keys = list(self._cache)
                self._bytes -= self._cache.pop(keys[int(self._draw.integers(len(keys)))]).bytes
            self._cache[key] = cells
            self._bytes += size


@dataclass(frozen=True, repr=False)
class _WithEmpty:
    """Stored columns, and columns of empty cells that take the place of those that are hidden."""

    stored: StoredColumns
    empty: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.stored.names, *self.empty]))

    @property
    def row_bytes(self) -> int:
        return self.stored.row_bytes

    def __len__(self) -> int:
        return len(self.stored)

    def read(self, name: str, rows: Array) -> Column:
        return empty_column(len(rows), name) if name in self.empty else self.stored.read(name, rows)

    def place(self, row: int) -> str:
        return self.stored.place(row)


@dataclass(frozen=True, repr=False)
class _TableChain:
    """The rows of several tables, one after another. starts: the first row of each table, and the end of the last."""

    each: tuple[StoredColumns, ...]
    starts: Array

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.each[0].names if all(name in columns.names for columns in self.each))

    @property
    def row_bytes(self) -> int:
        return max(columns.row_bytes for columns in self.each)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, name: str, rows: Array) -> Column:
        table_numbers = np.searchsorted(self.starts, rows, side="right") - 1
        places = [np.flatnonzero(table_numbers == table) for table in range(len(self.each))]
        each = [
            columns.read(name, rows[positions] - start)
            for columns, positions, start in zip(self.each, places, self.starts[:-1].tolist(), strict=True)
        ]
        return _gathered(each, places)

    def place(self, row: int) -> str:
        table = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"{self.each[table].place(row - int(self.starts[table]))} of table {table + 1}"


def _gathered(each: Sequence[Column], places: Sequence[Array]) -> Column:
    """Return a column from its parts. places: the positions of the cells of each part."""
    together, order = Column.joined(each), np.concatenate(places)
    if np.array_equal(order, np.arange(len(order))):
        return together
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return together.take(back)


def stacked(each: Sequence[LazyTable]) -> LazyTable:
    """Return the rows of all tables, one after another. Patients of different tables are different patients."""
    starts = np.cumsum([0, *(len(table.columns.stored) for table in each)])
    stored = _TableChain(tuple(table.columns.stored for table in each), starts)
    rows = np.concatenate([table.columns.rows + start for table, start in zip(each, starts[:-1], strict=True)])
    patients = tuple(f"{place}/{patient}" for place, table in enumerate(each) for patient in table.patients)
    hidden = frozenset[str]().union(*(table.columns.hidden for table in each))
    view, named = _View(stored, rows, hidden), all(table.named for table in each)
    return LazyTable(view, patients, named, mapping=each[0].mapping)


def list_table(
    path: Path | Sequence[Path], *, patient_column: str | None = None, spelling: Spelling = AS_WRITTEN
) -> LazyTable:
    """Return a table with columns that are read on demand. Needs the package pyarrow.

    path: a .parquet file, an Arrow IPC file (.arrow, .feather), a folder of only such files, or several files. Rows
    stand in the order of the file names, or of the given files. patient_column, spelling: as in `Table.of`.

    Raises:
        DataError: a file is missing, broken or empty, files have different columns, or a row has no patient.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    stored = Stored(
        [file for file_or_folder in paths for file in (table_files(file_or_folder) or [file_or_folder])],
        spelling=spelling,
    )
    has_patients = patient_column is not None
    patients = stored.patients(column_name(patient_column)) if has_patients else identifiers(None, len(stored))
    return LazyTable(_View(stored, np.arange(len(stored))), patients, has_patients)


def table_files(folder: Path) -> list[Path]:
    """Return the files of a folder that holds only one table in several files, without hidden files and _marks."""
    if not folder.is_dir():
        return []
    paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_"))]
    fits = all(path.is_file() and path.name.lower().endswith(SUFFIXES) for path in paths)
    return paths if fits else []


def _kinds(files: Sequence[Parts]) -> dict[str, Kind]:
    """Return the kinds of the columns that all files share.

    Raises:
        DataError: the files differ. The message names the column.
    """
    kinds: dict[str, Kind] = dict(files[0].kinds)
    for place, file in enumerate(files[1:], start=2):
        for name in dict.fromkeys([*kinds, *file.kinds]):
            if name not in file.kinds or name not in kinds:
                raise DataError(
                    f"column {name!r} is not in all {len(files)} files: file {place} differs from the first"
                )
            if "none" in (kinds[name], file.kinds[name]):
                kinds[name] = file.kinds[name] if kinds[name] == "none" else kinds[name]
            elif kinds[name] != file.kinds[name]:
                raise DataError(
                    f"column {name!r} is of another type in file {place} of {len(files)} than before it: write it with "
                    "one type, numbers in 64 bits"
                )
    if not kinds:
        raise DataError("the table has no columns")
    return kinds
