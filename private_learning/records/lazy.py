"""Records with inputs that are read on demand. Labels and patients are in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from private_learning.records.records import Array, DataError, Examples, identifiers

# Bytes of inputs that are read at once if all are needed in order.
PART_BYTES = 1 << 25

# Inputs with more bytes than this are read on demand by default.
LARGE = 1 << 29

# A file is known again by all of its bytes up to this size, and a larger one by some blocks.
_WHOLE_BYTES, _BLOCK_BYTES, _BLOCKS = 1 << 20, 1 << 12, 16

ReadBy = Literal["threads", "processes", "caller"]


class Reader(Protocol):
    """A reader of the inputs of records.

    `LazyExamples.read_by` decides if `read` is called from several threads at once, or from processes with a pickled
    reader. The result for a row depends only on this row.
    """

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def read(self, rows: Array) -> Array:
        """Return the inputs of k rows in their order, (k, ...) numbers, as in `Examples.inputs`.

        Raises:
            DataError: some cannot be read. The message counts them and never names a file.
        """
        ...


@runtime_checkable
class Recognisable(Protocol):
    """A reader that tells whether an input is stored as it was, without decoding it."""

    def stored(self, row: int) -> bytes:
        """Return bytes of the stored input, by which it is known again. Raises OSError: it cannot be read."""
        ...


class Sized(Protocol):
    """An object that knows its size in memory."""

    @property
    def bytes(self) -> int:
        """Return the bytes of the whole object in memory."""
        ...


@dataclass(frozen=True, repr=False)
class LazyExamples:
    """Examples with inputs that are read on demand. Made by `LazyExamples.of`. `take` returns a view.

    reader         of all rows
    rows           (n,) the rows of these records
    labels         (n, ...)
    patients       n identifiers
    named          as in `Table`
    read_by        the prefetching: "threads" if reading releases Python's lock, as Pillow and NumPy do, "processes" for
                   readers in pure Python, "caller" if only the calling thread may read
    label_columns  as in `Examples`
    """

    reader: Reader
    rows: Array
    labels: Array
    patients: tuple[str, ...]
    named: bool = True
    read_by: ReadBy = "threads"
    label_columns: tuple[str, ...] = ()

    # The largest number of rows that one worker reads at once.
    at_once: ClassVar[int] = 32

    @classmethod
    def of(
        cls,
        reader: Reader,
        labels: Any,
        patients: Sequence[Any] | Array | None = None,
        *,
        read_by: ReadBy = "threads",
        label_columns: Sequence[str] = (),
    ) -> LazyExamples:
        """Return all rows of a reader. Without `patients` every row is one patient. Reads no input.

        Raises:
            DataError: there is no row, or lengths differ.
        """
        labels = np.asarray(labels)
        if len(reader) == 0:
            raise DataError("inputs: at least one example is expected")
        if labels.shape[:1] != (len(reader),):
            raise DataError(f"labels: shape ({len(reader)},) is expected, one label per example")
        identities = identifiers(patients, len(reader))
        return cls(
            reader, np.arange(len(reader)), labels, identities, patients is not None, read_by, tuple(label_columns)
        )

    def __len__(self) -> int:
        return len(self.patients)

    def take(self, rows: Sequence[int] | Array) -> LazyExamples:
        """Return the given examples, in the given order, without reading inputs."""
        index = np.asarray(rows, dtype=np.int64)
        patients = tuple(self.patients[int(i)] for i in index)
        return replace(self, rows=self.rows[index], labels=self.labels[index], patients=patients)

    def read(self, rows: Sequence[int] | Array) -> Examples:
        """Return the given examples in memory, in the given order.

        Raises:
            DataError: some cannot be read any more, or the reader does not return numbers for each.
        """
        index = np.asarray(rows, dtype=np.int64)
        return self.with_inputs(index, read_inputs(self.reader, self.rows[index]))

    def with_inputs(self, index: Array, inputs: Array) -> Examples:
        """Return the given examples with inputs that were read elsewhere."""
        patients = tuple(self.patients[int(i)] for i in index)
        return Examples(inputs, self.labels[index], patients, self.named, self.label_columns)

    def in_memory(self) -> Examples:
        """Return all examples in memory. Raises as `read`."""
        return self.read(range(len(self)))

    @property
    def bytes(self) -> int:
        """Return the bytes of all inputs in memory, from the size of the first. Raises as `read`."""
        return len(self) * self.read([0]).inputs.nbytes

    def parts(self) -> Iterator[Examples]:
        """Yield all examples in parts of about PART_BYTES. Raises as `read`."""
        size = max(1, PART_BYTES * len(self) // max(1, self.bytes))
        for start in range(0, len(self), size):
            yield self.read(range(start, min(start + size, len(self))))


@dataclass(frozen=True, repr=False)
class _ReaderChain:
    """The rows of several readers, one after another. starts: the first row of each reader, and the end of the last."""

    readers: tuple[Reader, ...]
    starts: Array

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, rows: Array) -> Array:
        reader_places = np.searchsorted(self.starts, rows, side="right") - 1
        rows_read: list[Array] = [np.zeros(0)] * len(rows)
        for place in range(len(self.readers)):
            (positions,) = np.nonzero(reader_places == place)
            inputs = read_inputs(self.readers[place], rows[positions] - self.starts[place])
            for position, row_inputs in zip(positions, inputs, strict=True):
                rows_read[position] = row_inputs
        if len({row_inputs.shape for row_inputs in rows_read}) > 1:
            raise DataError("inputs: records of several files have different shapes")
        return np.stack(rows_read)


def chained(each: Sequence[LazyExamples]) -> LazyExamples:
    """Return the examples of all, one after another. Patients of different parts are different patients."""
    starts = np.cumsum([0, *(len(examples.reader) for examples in each)])
    reader = _ReaderChain(tuple(examples.reader for examples in each), starts)
    rows = np.concatenate([examples.rows + start for examples, start in zip(each, starts[:-1], strict=True)])
    patients = tuple(f"{place}/{patient}" for place, examples in enumerate(each) for patient in examples.patients)
    labels = np.concatenate([examples.labels for examples in each])
    columns = tuple(dict.fromkeys(name for examples in each for name in examples.label_columns))
    return LazyExamples(
        reader, rows, labels, patients, all(examples.named for examples in each), each[0].read_by, columns
    )


def reads_lazily(records: Sized, lazy: bool | None) -> bool:
    """Return whether the records are read on demand. lazy: None: if they are larger than LARGE."""
    return records.bytes > LARGE if lazy is None else lazy


def stored_bytes(path: Path) -> bytes:
    """Return the bytes of a file as `Recognisable.stored`: above 1 MiB its size and 16 evenly spaced blocks."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _WHOLE_BYTES:
            return file.read()
        blocks = [b"%d:" % size]
        for place in range(_BLOCKS):
            file.seek(place * (size - _BLOCK_BYTES) // (_BLOCKS - 1))
            blocks.append(file.read(_BLOCK_BYTES))
        return b"".join(blocks)


def read_inputs(reader: Reader, rows: Array) -> Array:
    """Return the checked inputs of these rows.

    Raises:
        DataError: the reader failed. Its message is not repeated, because it may name a file, and files are often named
            after people.
    """
    try:
        inputs = np.asarray(reader.read(rows))
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"inputs: some of {len(rows)} records can no longer be read ({type(error).__name__}): put back what was "
            "moved, renamed or changed since the records were loaded, and start again. No step was charged for them"
        ) from error
    if inputs.shape[:1] != (len(rows),) or inputs.ndim < 2 or inputs.dtype.kind not in "uif":
        raise DataError(
            "inputs: a reader returns an array of numbers, with one row for each record and one further axis"
        )
    return inputs
