"""Tables whose cells are read when they are needed: patients lie in memory, columns where they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from client_sdk.data.lazy import PART_BYTES
from client_sdk.data.records import Array, Table, identifiers, require_patient_column
from client_sdk.data.row_groups import GroupedFile

_CELL_BYTES = 8


class FileRows(Table):
    """A table that knows which rows of a file it is: `lines` are those, counted from 1."""

    def first(self, marked: Array) -> str:
        """Where the first of the marked rows is in the file."""
        return f"row {int(self.lines[int(np.argmax(marked))])}" if self.lines is not None else super().first(marked)

    def take(self, rows: Sequence[int] | Array) -> FileRows:
        """The given rows, in the given order."""
        few = super().take(rows)
        return FileRows(few.columns, few.patients, few.named, few.lines)


@dataclass(frozen=True)
class LazyTable:
    """As `Table`, but that cells are read on demand. Made by `list_parquet`; `take` gives a view.

    file: all rows. rows: (n,) which of them these records are. names: of the columns, the patient's is not among them.
    patients: n identifiers. named: as in `Table`.
    """

    file: GroupedFile
    rows: Array = field(repr=False)
    names: tuple[str, ...]
    patients: tuple[str, ...] = field(repr=False)
    named: bool

    def __len__(self) -> int:
        return len(self.patients)

    def take(self, rows: Sequence[int] | Array) -> LazyTable:
        """The given rows, in the given order; nothing is read."""
        index = np.asarray(rows, dtype=np.int64)
        patients = tuple(self.patients[int(i)] for i in index)
        return LazyTable(self.file, self.rows[index], self.names, patients, self.named)

    def read(self, rows: Sequence[int] | Array, names: Sequence[str] | None = None) -> Table:
        """The given rows in memory, in the given order; names: of the columns that are read, None: all.

        Raises:
            DataError: the file is broken or has changed, or a column holds several values in a row.
        """
        index = np.asarray(rows, dtype=np.int64)
        own = self.rows[index]
        found = Table.of(self.file.cells(own, self.names if names is None else names))
        return FileRows(found.columns, tuple(self.patients[int(i)] for i in index), self.named, own + 1)

    def in_memory(self, names: Sequence[str] | None = None) -> Table:
        """All of them, however large. names, and raises: as `read`."""
        return self.read(range(len(self)), names)

    @property
    def bytes(self) -> int:
        """Of all columns in memory, if they were numbers."""
        return len(self) * len(self.names) * _CELL_BYTES

    def parts(self, names: Sequence[str]) -> Iterator[Table]:
        """These columns of all rows, about PART_BYTES at a time. Raises as `read`."""
        size = max(1, PART_BYTES // (_CELL_BYTES * max(1, len(names))))
        for start in range(0, len(self), size):
            yield self.read(range(start, min(start + size, len(self))), names)


def list_parquet(path: Path, *, patient_column: str | None = None) -> LazyTable:
    """A Parquet, Arrow or Feather file, of which only the patients are read now. Needs the package pyarrow.

    patient_column: who a row belongs to; left out, every row is a patient of its own.

    Raises:
        DataError: not such a file, or not a whole one; no row, no such column, a row without its patient.
    """
    file = GroupedFile.at(path)
    everything = np.arange(len(file))
    if patient_column is None:
        return LazyTable(file, everything, file.names, identifiers(None, len(file)), False)
    require_patient_column(patient_column, file.names)
    whose = np.asarray(file.cells(everything, [patient_column])[patient_column]).tolist()
    names = tuple(name for name in file.names if name != patient_column)
    return LazyTable(file, everything, names, identifiers(whose, len(file)), True)
