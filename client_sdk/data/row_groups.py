"""Parquet and Arrow files: columns of some rows, by the groups of rows in which they lie. Needs the package pyarrow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from client_sdk.data.paths import require_there
from client_sdk.data.records import Array, DataError

SUFFIXES = (".parquet", ".arrow", ".feather")
# Bytes of groups that are held decoded, of all files together; a larger group is held alone.
HELD = 1 << 26
_OPEN = 16


@dataclass(frozen=True)
class GroupedFile:
    """A file of columns in groups of rows: Parquet's row groups, Arrow's record batches. Made by `at`.

    stamp: size and time of the file. starts: (groups + 1,) the row with which each begins, and where the last one ends.
    """

    path: Path
    stamp: tuple[int, int]
    names: tuple[str, ...]
    starts: Array = field(repr=False)

    @classmethod
    def at(cls, path: Path) -> GroupedFile:
        """What the file says of itself; no row is read.

        Raises:
            DataError: no such file, no row, two columns of one name, or pyarrow is not installed.
        """
        require_there(path)
        stamp = _stamp(path)
        try:
            names, counts = _parquet_form(path, stamp) if _is_parquet(path) else _arrow_form(path, stamp)
        except DataError:
            raise
        # pyarrow's own errors are ValueErrors and OSErrors.
        except (ValueError, OSError) as error:
            raise _broken(path) from error
        if not names or not sum(counts):
            raise DataError(f"{path.name}: a table with at least one column and one row is expected")
        if len(set(names)) < len(names):
            raise DataError(f"{path.name}: two columns of the table have one name; rename one of them")
        return cls(path, stamp, tuple(names), np.cumsum([0, *counts]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def largest(self) -> int:
        """Rows of the largest group."""
        return int(np.diff(self.starts).max())

    def cells(self, rows: Array, names: Sequence[str]) -> dict[str, Any]:
        """name -> (k,) the cells of the rows, in their order; of other columns nothing is read.

        Raises:
            DataError: the file is broken or has changed since `at`, or a column holds more than one value per row.
        """
        arrow = _pyarrow()
        order = np.argsort(rows, kind="stable")
        whose = np.searchsorted(self.starts, rows[order], side="right") - 1
        wanted = tuple(names)
        try:
            parts = [
                _group(self, group, wanted).take(arrow.array(rows[order[whose == group]] - self.starts[group]))
                for group in np.unique(whose).tolist()
            ]
            back = np.empty(len(rows), np.int64)
            back[order] = np.arange(len(rows))
            found = arrow.concat_tables(parts).take(arrow.array(back))
        except DataError:
            raise
        except (ValueError, OSError) as error:
            raise _broken(self.path) from error
        return {name: _cells(found.column(name)) for name in wanted}


def _cells(column: Any) -> Any:
    # Others as Python has them, so that a cell is the same whatever stands in the rest of its column.
    kinds = _pyarrow().types
    plain = kinds.is_integer(column.type) or kinds.is_floating(column.type)
    return column.to_numpy() if plain else column.to_pylist()


_held: OrderedDict[tuple[Path, tuple[int, int], int, tuple[str, ...]], tuple[Any, int]] = OrderedDict()
# One thread decodes at a time: pyarrow uses all processors by itself, and what is in memory stays bounded.
_decoding = Lock()


def _group(file: GroupedFile, group: int, names: tuple[str, ...]) -> Any:
    """The columns of a group, which the next threads that ask find held."""
    key = (file.path, file.stamp, group, names)
    with _decoding:
        if key in _held:
            _held.move_to_end(key)
            return _held[key][0]
        if _stamp(file.path) != file.stamp:
            raise DataError(
                f"{file.path.name}: the file has changed since the records were loaded: put it back and start again; "
                "no step was charged for these records"
            )
        read = _parquet_group if _is_parquet(file.path) else _arrow_group
        found = _plain(file, read(file, group, names))
        _held[key] = found, found.nbytes
        room = sum(size for _, size in _held.values()) - HELD
        while len(_held) > 1 and room > 0:
            room -= _held.popitem(last=False)[1][1]
        return found


def _plain(file: GroupedFile, table: Any) -> Any:
    """The same without codes for texts.

    Raises:
        DataError: a column of lists or records.
    """
    arrow = _pyarrow()
    for place, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        if arrow.types.is_dictionary(kind):
            table = table.set_column(place, name, table.column(name).cast(kind.value_type))
        elif arrow.types.is_nested(kind):
            raise DataError(f"{file.path.name}: column {name} holds several values in a row; one is expected")
    return table


def _parquet_form(path: Path, stamp: tuple[int, int]) -> tuple[list[str], list[int]]:
    opened = _parquet(path, stamp)
    counts = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
    return list(opened.schema_arrow.names), counts


# Held open: what a file says of its groups takes long to read where it has thousands. One thread at a time decodes.
@lru_cache(maxsize=_OPEN)
def _parquet(path: Path, stamp: tuple[int, int]) -> Any:
    return _library("parquet").ParquetFile(path)


def _parquet_group(file: GroupedFile, group: int, names: Sequence[str]) -> Any:
    return _parquet(file.path, file.stamp).read_row_group(group, columns=list(names))


def _arrow_form(path: Path, stamp: tuple[int, int]) -> tuple[list[str], list[int]]:
    # A batch says how long it is once a column of it has been read.
    opened = _arrow(path, stamp, (0,))
    counts = [opened.get_batch(group).num_rows for group in range(opened.num_record_batches)]
    return list(_arrow(path, stamp, None).schema.names), counts


@lru_cache(maxsize=_OPEN)
def _arrow(path: Path, stamp: tuple[int, int], columns: tuple[int, ...] | None) -> Any:
    """columns: places of those that are read; None: all."""
    ipc = _library("ipc")
    chosen = None if columns is None else list(columns)
    return ipc.open_file(_pyarrow().OSFile(str(path)), options=ipc.IpcReadOptions(included_fields=chosen))


def _arrow_group(file: GroupedFile, group: int, names: Sequence[str]) -> Any:
    opened = _arrow(file.path, file.stamp, tuple(file.names.index(name) for name in names))
    return _pyarrow().Table.from_batches([opened.get_batch(group)])


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _stamp(path: Path) -> tuple[int, int]:
    try:
        about = path.stat()
    except OSError:
        return 0, 0
    return about.st_size, about.st_mtime_ns


def _broken(path: Path) -> DataError:
    if _is_parquet(path):
        return DataError(f"{path.name}: this is not a whole Parquet file")
    return DataError(
        f"{path.name}: this is not a whole Arrow file; Arrow's file format is expected, which is Feather's version 2, "
        "and no stream"
    )


def _pyarrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise DataError("Parquet and Arrow files need the package pyarrow: pip install 'wardround[parquet]'") from error


def _library(name: str) -> Any:
    _pyarrow()
    return import_module(f"pyarrow.{name}")
