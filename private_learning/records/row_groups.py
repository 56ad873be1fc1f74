"""Tables in parts: Parquet files by row groups, Arrow files by record batches. Needs the package pyarrow."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from private_learning.records.paths import require_there
from private_learning.records.records import DataError
from study_protocol.cells import AS_WRITTEN, Column, Spelling, column_name, text_of
from study_protocol.cells.unpacking import require_safe

ARROW = (".arrow", ".feather")
SUFFIXES = (".parquet", *ARROW)
# Files, or columns of Arrow files, that a thread keeps open: opening takes longer than reading a small row group.
_LEFT_OPEN = 8
_CELL_BYTES = 8
# From the type of a column. "none" fits every kind, because all its cells are missing. Numbers of low precision are
# compared with codes at their own precision, which they would lose beside others.
Kind = Literal["number", "float16", "float32", "text", "date", "none", "nested"]
# Tests of pyarrow.types. The first one that a type passes tells its kind.
_KINDS: Mapping[str, Kind] = {
    "is_null": "none",
    "is_float16": "float16",
    "is_float32": "float32",
    "is_integer": "number",
    "is_floating": "number",
    "is_boolean": "number",
    "is_decimal": "number",
    "is_date": "date",
    "is_nested": "nested",
}


class OpenFiles(threading.local):
    """The last few files that each thread of each process has open. They are never shared, and not pickled."""

    def __init__(self) -> None:
        self._process, self._files = os.getpid(), dict[object, Any]()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[()]]:
        return OpenFiles, ()

    def get(self, key: object, opened: Callable[[], Any]) -> Any:
        """Return the open file of this key, or the result of `opened`."""
        if self._process != os.getpid():
            # A fork does not read through files of its parent.
            self._process, self._files = os.getpid(), {}
        file = self._files.pop(key, None)
        self._files[key] = file = opened() if file is None else file
        if len(self._files) > _LEFT_OPEN:
            del self._files[next(iter(self._files))]
        return file


class Parts(ABC):
    """One file that any thread can read. kinds: of its columns. rows: of each part. files: the open files."""

    format_name: str

    def __init__(self, path: Path, files: OpenFiles, spelling: Spelling) -> None:
        require_there(path)
        self.path, self._files, self.spelling = path, files, spelling
        self._state = _state(path)
        try:
            schema, self.rows = self._opened()
            # Invalid bytes in a name raise an error here.
            names = list(schema.names)
        except (ValueError, OSError, *_errors()) as error:
            raise DataError(f"{path.name}: this is not a whole {self.format_name} file") from error
        # One column of one part is read at a time. Its number of rows is only stated: a few bytes can repeat a cell.
        require_safe(path.name, self._state[0], _widest(schema) * max(self.rows, default=0))
        # One letter may be encoded in two ways.
        self._stored_as = {column_name(name): name for name in names}
        if len(self._stored_as) < len(names):
            raise DataError("two columns of the table have one name. Rename one of them")
        self.kinds: Mapping[str, Kind] = {
            column_name(str(schema_field.name)): _kind(schema_field.type) for schema_field in schema
        }

    def cells(self, part: int, name: str) -> Column:
        """Return a column of one part, in the stored type.

        Raises:
            DataError: the file is broken there, has changed, or has cells of another kind.
        """
        column = self.column(part, name)
        try:
            return _cells(column, self.spelling, name)
        except DataError:
            raise
        except (ValueError, OSError, *_errors()) as error:
            raise DataError(
                f"column {name}: some of {self.rows[part]} cells can be read neither as numbers nor as text"
            ) from error

    def identifiers(self, part: int, name: str) -> list[Any]:
        """Return a column of one part as written, with text as `str` for every storage type. Raises as `cells`."""
        column = self.column(part, name)
        try:
            if _arrow().types.is_dictionary(column.type):
                words = [None, *_decoded(column.dictionary).to_pylist()]
                return [words[code + 1] for code in column.indices.fill_null(-1).to_pylist()]
            if _arrow().types.is_floating(column.type):
                # At the stored precision: large numbers of 32 bits are not exact.
                return list(column.to_numpy(zero_copy_only=False))
            return list(_decoded(column).to_pylist())
        except _errors() as error:
            raise DataError(f"column {name}: some of {self.rows[part]} cells cannot be read as text") from error

    def column(self, part: int, name: str) -> Any:
        """Return a column of one part as an array of pyarrow. Raises as `cells`."""
        if self.kinds[name] == "nested":
            raise DataError(f"column {name}: its cells are lists or structures. Numbers or text are expected")
        try:
            if _state(self.path) != self._state:
                raise DataError("the table's file has changed since it was opened: start again")
            cells = self._column(part, self._stored_as[name])
        except DataError:
            raise
        except (ValueError, OSError, *_errors()) as error:
            raise DataError(
                f"column {name}: the file is broken there, its text is not UTF-8, or it was moved meanwhile"
            ) from error
        if len(cells) != self.rows[part]:
            raise DataError(f"column {name}: another number of rows is stored than the file says")
        return cells

    @abstractmethod
    def _opened(self) -> tuple[Any, tuple[int, ...]]:
        """Return the schema, and the rows of each part."""

    @abstractmethod
    def _column(self, part: int, name: str) -> Any: ...


class ParquetParts(Parts):
    """The row groups of a Parquet file."""

    format_name = "Parquet"

    def _opened(self) -> tuple[Any, tuple[int, ...]]:
        with _parquet().ParquetFile(self.path) as file:
            self._metadata, schema = file.metadata, file.schema_arrow
        rows = tuple(self._metadata.row_group(group).num_rows for group in range(self._metadata.num_row_groups))
        if min(rows, default=0) < 0 or sum(rows) != self._metadata.num_rows:
            raise ValueError("its row groups hold another number of rows")
        # Read as codes: a long word in every row would fill the memory.
        self._coded = [schema_field.name for schema_field in schema if _spelt(schema_field.type)]
        return schema, rows

    def _column(self, part: int, name: str) -> Any:
        file = self._files.get(self.path, self._reader)
        # Threads prefetch already.
        table = file.read_row_group(part, columns=[name], use_threads=False)
        return _plain(table.column(name).combine_chunks())

    def _reader(self) -> Any:
        return _parquet().ParquetFile(self.path, metadata=self._metadata, read_dictionary=self._coded)


class ArrowParts(Parts):
    """Record batches of an Arrow IPC file (Feather, version 2). The file as a whole is not in memory."""

    format_name = "Arrow"

    def _opened(self) -> tuple[Any, tuple[int, ...]]:
        arrow = _arrow()
        with arrow.memory_map(str(self.path)) as source:
            # Only one column: otherwise all compressed columns would be decoded.
            options = arrow.ipc.IpcReadOptions(included_fields=[0], use_threads=False)
            file = arrow.ipc.open_file(source, options=options)
            batches = range(file.num_record_batches)
            # With options, a file has only the schema of the included columns.
            schema = arrow.ipc.open_file(source).schema
            return schema, tuple(file.get_batch(batch).num_rows for batch in batches)

    def _column(self, part: int, name: str) -> Any:
        # One file for each column: without `included_fields`, all compressed columns would be decoded.
        file = self._files.get((self.path, name), lambda: self._of_one_column(name))
        return _plain(file.get_batch(part).column(0))

    def _of_one_column(self, name: str) -> Any:
        arrow = _arrow()
        field = list(self._stored_as.values()).index(name)
        options = arrow.ipc.IpcReadOptions(included_fields=[field], use_threads=False)
        # Read, not mapped: all pages read from an open map would count as memory in use.
        return arrow.ipc.open_file(arrow.OSFile(str(self.path)), options=options)


def parts_of(path: Path, files: OpenFiles | None = None, spelling: Spelling = AS_WRITTEN) -> Parts:
    """Return the parts of a file, by its name. spelling: how texts in it are written.

    Raises:
        DataError: the file is missing or broken, or pyarrow is not installed.
    """
    kind = ArrowParts if path.name.lower().endswith(ARROW) else ParquetParts
    return kind(path, OpenFiles() if files is None else files, spelling)


def _kind(kind: Any) -> Kind:
    types = _arrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_timestamp(kind) and kind.tz is None:
        return "date"
    kinds: list[Kind] = [name for is_kind, name in _KINDS.items() if getattr(types, is_kind)(kind)]
    return kinds[0] if kinds else "text"


def _widest(schema: Any) -> int:
    """Return the bytes of a cell of the widest column. Words of any length are read as codes."""
    fixed = _arrow().types.is_fixed_size_binary
    return max([_CELL_BYTES, *(schema_field.type.byte_width for schema_field in schema if fixed(schema_field.type))])


def _spelt(kind: Any) -> bool:
    """Return whether cells of this type are words, not decimals and not lists."""
    types = _arrow().types
    return any(
        is_one(kind) for is_one in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _plain(column: Any) -> Any:
    """Return one array. Raises ArrowInvalid: cells lie outside of the stored bytes, where reading crashes."""
    arrow = _arrow()
    column.validate(full=True)
    if isinstance(column, arrow.ChunkedArray):
        column = arrow.concat_arrays(column.chunks) if column.num_chunks else arrow.array([], column.type)
    if arrow.types.is_dictionary(column.type) and _kind(column.type) != "text":
        return column.dictionary_decode()
    return column


def _cells(column: Any, spelling: Spelling, name: str) -> Column:
    arrow = _arrow()
    types, kind = arrow.types, column.type
    if types.is_null(kind):
        return Column.of_words(np.zeros(len(column), np.int32), [None], spelling, name)
    if _kind(kind) == "text" or types.is_decimal(kind):
        return _text(column, spelling, name)
    absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else None
    if types.is_floating(kind):
        # A copy, because the array may lie in the file's memory. Without a null it keeps its type, else NaN is used.
        values = np.array(column.to_numpy(zero_copy_only=False), dtype=kind.to_pandas_dtype())
        return Column(values, None, None, spelling, name)
    if _kind(kind) == "date":
        column, zero = column.cast(arrow.timestamp("us"), safe=False), 0
    else:
        zero = False if types.is_boolean(kind) else 0
    values = column if absent is None else column.fill_null(arrow.scalar(zero, column.type))
    return Column(np.array(values.to_numpy(zero_copy_only=False)), None, absent, spelling, name)


def _decoded(column: Any) -> Any:
    """Return the column with text that is stored as bytes decoded."""
    arrow = _arrow()
    as_bytes = arrow.types.is_binary(column.type) or arrow.types.is_large_binary(column.type)
    return column.cast(arrow.large_string()) if as_bytes else column


def _text(column: Any, spelling: Spelling, name: str) -> Column:
    arrow = _arrow()
    coded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = np.array(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int32) + 1
    words, strange = list[str | None]([None]), list[int]()
    for place, cell in enumerate(coded.dictionary.to_pylist(), start=1):
        try:
            words.append(text_of(cell, spelling))
        except (TypeError, ValueError):
            words.append(None)
            strange.append(place)
    if strange:
        wrong = int(np.isin(codes, strange).sum())
        raise DataError(f"column {name}: {wrong} of {len(codes)} cells can be read neither as numbers nor as text")
    return Column.of_words(codes, words, spelling, name)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _arrow() -> Any:
    try:
        import pyarrow as arrow  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError as error:
        raise DataError(
            "Parquet and Arrow files need the package pyarrow: pip install 'wardround[parquet]', or pip install pyarrow"
        ) from error
    return cast(Any, arrow)  # It comes without annotations.


def _parquet() -> Any:
    _arrow()
    import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

    return cast(Any, parquet)


def _errors() -> tuple[type[Exception], ...]:
    return (_arrow().ArrowException,)
