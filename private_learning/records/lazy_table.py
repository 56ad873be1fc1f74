"""Tables that need not fit in memory: patients lie in memory, columns in their files until somebody asks for one."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from private_learning.records.lazy import ReadBy
from private_learning.records.records import Array, DataError, Table, identifiers, require_patient_column
from private_learning.records.row_groups import SUFFIXES, Kind, OpenFiles, Parts, parts_of
from study_protocol.cells import AS_WRITTEN, Column, Spelling, column_name
from study_protocol.cells.digest import digest_of

# Bytes of decoded columns of row groups that one table keeps.
ROOM = 1 << 27
# Rows that are taken at once where all are needed one after the other.
PART_ROWS = 1 << 16
# Bytes of one text cell in memory, about.
_TEXT_BYTES = 64


class Columns(Protocol):
    """Where the columns of a table lie. Read by several threads at once."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all columns but the patients'."""
        ...

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def read(self, name: str, rows: Array) -> Column:
        """(k,) cells of one column, in the order of the rows, as `Table.columns` has them.

        Raises:
            DataError: they cannot be read any more.
        """
        ...

    @property
    def row_bytes(self) -> int:
        """Of one row of all columns in memory, about."""
        ...

    def place(self, row: int) -> str:
        """Where a row is, for a person who looks for it."""
        ...


@dataclass(frozen=True)
class _View(Mapping[str, Column]):
    """Columns of some rows: each is read when it is asked for, and not kept. hidden: names that are not there."""

    stored: Columns
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


@dataclass(frozen=True)
class LazyTable(Table):
    """A `Table` whose columns are read when they are asked for, row group by row group. Made by `list_table`.

    What a cell says does not depend on which rows are read with it.
    """

    columns: _View = field(repr=False)

    read_by: ClassVar[ReadBy] = "threads"
    at_once: ClassVar[int] = 1 << 14

    def without_columns(self, names: Collection[str]) -> LazyTable:
        return replace(self, columns=replace(self.columns, hidden=self.columns.hidden | frozenset(names)))

    def take(self, rows: Sequence[int] | Array) -> LazyTable:
        """The given rows, in the given order; nothing is read."""
        index = np.asarray(rows, dtype=np.int64)
        patients = tuple(map(self.patients.__getitem__, index.tolist()))
        return replace(self, columns=replace(self.columns, rows=self.columns.rows[index]), patients=patients)

    # Whoever asks for a column of it has it read: `LazyInputs` takes both kinds of records alike.
    read = take

    def parts(self) -> Iterator[LazyTable]:
        """All rows, about PART_ROWS at a time."""
        for start in range(0, len(self), PART_ROWS):
            yield self.take(range(start, min(start + PART_ROWS, len(self))))

    def digest(self) -> str:
        return digest_of(self.parts(), self.columns, with_patients=self.named)

    def first(self, marked: Array) -> str:
        return self.columns.stored.place(int(self.columns.rows[int(np.argmax(marked))]))

    @property
    def bytes(self) -> int:
        """Of all columns in memory, about."""
        return len(self) * self.columns.stored.row_bytes

    def in_memory(self) -> Table:
        """All of it, as `Table.of` has it. Raises DataError: a column cannot be read."""
        columns = dict(self.columns.items())
        return Table(columns, self.patients, self.named, format=self.format, declared=self.declared)


class Stored:
    """Files of one table, row after row in their order; a bounded part of what was decoded is kept.

    Raises:
        DataError: as of each file; the files have different columns, or no row.
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
        """With nothing kept."""
        self._kept, self._bytes = dict[tuple[int, str], Column](), 0
        self._lock, self._locks = threading.Lock(), dict[tuple[int, str], threading.Lock]()
        self._draw = np.random.default_rng(0)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which reads for itself."""
        own = ("_kept", "_bytes", "_lock", "_locks", "_draw")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def patients(self, name: str) -> tuple[str, ...]:
        """Who the rows are of; the column is then none of the table's.

        Raises:
            DataError: there is no such column, or a row without its patient.
        """
        require_patient_column(name, self._kinds)
        self.names = tuple(one for one in self.names if one != name)
        # As they are written: as numbers long ones would lose their last digits.
        found = (cell for file, part in self._parts for cell in file.identifiers(part, name))
        return identifiers(found, len(self))

    @property
    def row_bytes(self) -> int:
        """Of one row of all columns in memory, about."""
        return sum(_TEXT_BYTES if self._kinds[name] == "text" else 8 for name in self.names)

    def read(self, name: str, rows: Array) -> Column:
        whose = np.searchsorted(self._starts, rows, side="right") - 1
        if not len(rows):
            return self._cells(0, name).take([])
        order = np.argsort(whose, kind="stable")
        parts, begins = np.unique(whose[order], return_index=True)
        places = np.split(order, begins[1:])
        each = [
            self._cells(part, name).take(rows[here] - self._starts[part])
            for part, here in zip(parts.tolist(), places, strict=True)
        ]
        return _gathered(each, places)

    def place(self, row: int) -> str:
        file = int(np.searchsorted(self._file_rows, row, side="right")) - 1
        files = len(self._file_rows) - 1
        return f"row {row - int(self._file_rows[file]) + 1}" + (f" of file {file + 1} of {files}" if files > 1 else "")

    def _cells(self, part: int, name: str) -> Column:
        key = part, name
        with self._lock:
            own = self._locks.setdefault(key, threading.Lock())
        # Two who need the same wait for one.
        with own:
            if (kept := self._kept.get(key)) is not None:
                return kept
            file, place = self._parts[part]
            cells = file.cells(place, name)
            self._keep(key, cells)
        return cells

    def _keep(self, key: tuple[int, str], cells: Column) -> None:
        size = cells.bytes
        if size > self._room:
            return
        with self._lock:
            # At random: a step goes through all row groups in order, and the oldest is always the next to be needed.
            while self._bytes + size > self._room:
                keys = list(self._kept)
                self._bytes -= self._kept.pop(keys[int(self._draw.integers(len(keys)))]).bytes
            self._kept[key] = cells
            self._bytes += size


@dataclass(frozen=True)
class _Chain:
    """The rows of one table after those of another; starts: where each one's begin, and where the last one's end."""

    each: tuple[Columns, ...]
    starts: Array

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.each[0].names if all(name in one.names for one in self.each))

    @property
    def row_bytes(self) -> int:
        return max(one.row_bytes for one in self.each)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, name: str, rows: Array) -> Column:
        whose = np.searchsorted(self.starts, rows, side="right") - 1
        places = [np.flatnonzero(whose == table) for table in range(len(self.each))]
        each = [
            one.read(name, rows[here] - start)
            for one, here, start in zip(self.each, places, self.starts[:-1].tolist(), strict=True)
        ]
        return _gathered(each, places)

    def place(self, row: int) -> str:
        table = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"{self.each[table].place(row - int(self.starts[table]))} of table {table + 1}"


def _gathered(each: Sequence[Column], places: Sequence[Array]) -> Column:
    """Parts of a column together. places: of each part, where its cells stand."""
    together, order = Column.joined(each), np.concatenate(places)
    if np.array_equal(order, np.arange(len(order))):
        return together
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return together.take(back)


def stacked(each: Sequence[LazyTable]) -> LazyTable:
    """All rows of one after those of another. Nobody is anybody else: patients of two are told apart."""
    starts = np.cumsum([0, *(len(one.columns.stored) for one in each)])
    stored = _Chain(tuple(one.columns.stored for one in each), starts)
    rows = np.concatenate([one.columns.rows + start for one, start in zip(each, starts[:-1], strict=True)])
    patients = tuple(f"{place}/{patient}" for place, one in enumerate(each) for patient in one.patients)
    hidden = frozenset[str]().union(*(one.columns.hidden for one in each))
    return LazyTable(_View(stored, rows, hidden), patients, all(one.named for one in each))


def list_table(
    path: Path | Sequence[Path], *, patient_column: str | None = None, spelling: Spelling = AS_WRITTEN
) -> LazyTable:
    """A table whose columns are read when they are needed. Needs the package pyarrow.

    path: a .parquet file, an Arrow IPC file (.arrow, .feather), a folder of nothing else, or several files; rows stand
    in the order of the files' names, or of those given. patient_column, spelling: as in `Table.of`.

    Raises:
        DataError: a file is not there, broken or empty; files with different columns; a row without its patient.
    """
    paths = [path] if isinstance(path, Path) else list(path)
    stored = Stored([file for one in paths for file in (table_files(one) or [one])], spelling=spelling)
    named = patient_column is not None
    patients = stored.patients(column_name(patient_column)) if named else identifiers(None, len(stored))
    return LazyTable(_View(stored, np.arange(len(stored))), patients, named)


def table_files(folder: Path) -> list[Path]:
    """The files of a folder that holds one table in several files and nothing else; hidden ones and _marks aside."""
    if not folder.is_dir():
        return []
    seen = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_"))]
    fits = all(path.is_file() and path.name.lower().endswith(SUFFIXES) for path in seen)
    return seen if fits else []


def _kinds(files: Sequence[Parts]) -> dict[str, Kind]:
    """Of the columns, which all files have alike.

    Raises:
        DataError: they do not; the text names the column.
    """
    found: dict[str, Kind] = dict(files[0].kinds)
    for place, file in enumerate(files[1:], start=2):
        for name in dict.fromkeys([*found, *file.kinds]):
            if name not in file.kinds or name not in found:
                raise DataError(
                    f"column {name!r} is not in all {len(files)} files: file {place} differs from the first"
                )
            if "none" in (found[name], file.kinds[name]):
                found[name] = file.kinds[name] if found[name] == "none" else found[name]
            elif found[name] != file.kinds[name]:
                raise DataError(
                    f"column {name!r} is of another type in file {place} of {len(files)} than before it: write it with "
                    "one type, numbers in 64 bits"
                )
    if not found:
        raise DataError("the table has no columns")
    return found
