"""Records whose inputs are read on demand: labels and patients lie in memory, inputs where they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from private_learning.records.records import Array, DataError, Examples, identifiers

# Bytes of inputs that are read at once where all are needed one after the other.
PART_BYTES = 1 << 25

# Bytes of inputs from which on they are read when they are needed, unless somebody says otherwise.
LARGE = 1 << 29

ReadBy = Literal["threads", "processes", "caller"]


class Reader(Protocol):
    """Where the inputs of records lie.

    Its `read` is called from several threads at once, or from processes into which the reader was pickled: whichever
    `LazyExamples.read_by` says. What it gives of a row depends on this row alone.
    """

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def read(self, rows: Array) -> Array:
        """(k, ...) numbers: the inputs of (k,) rows, in their order, as `Examples.inputs` would hold them.

        Raises:
            DataError: some cannot be read; the text counts them and never names a file.
        """
        ...


class Sized(Protocol):
    """What says how large it would be in memory."""

    @property
    def bytes(self) -> int:
        """Of all of it."""
        ...


@dataclass(frozen=True)
class LazyExamples:
    """As `Examples`, but that the inputs are read on demand. Made by `LazyExamples.of`; `take` gives a view.

    reader: of all rows. rows: (n,) which of them these records are. labels: (n, ...). patients: n identifiers. named:
    as in `Table`. read_by: who reads ahead while a step is computed: "threads" where reading leaves Python alone, as
    Pillow and NumPy do; "processes" for readers in pure Python; "caller" where only the thread that asks may read.
    label_columns: as in `Examples`.
    """

    reader: Reader
    rows: Array = field(repr=False)
    labels: Array = field(repr=False)
    patients: tuple[str, ...] = field(repr=False)
    named: bool = True
    read_by: ReadBy = "threads"
    label_columns: tuple[str, ...] = ()

    # Rows that one worker reads at once, at most.
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
        """All rows of a reader; without `patients` every one is a patient of its own. Reads no input.

        Raises:
            DataError: no row, or lengths that differ.
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
        """The given examples, in the given order; nothing is read."""
        index = np.asarray(rows, dtype=np.int64)
        patients = tuple(self.patients[int(i)] for i in index)
        return replace(self, rows=self.rows[index], labels=self.labels[index], patients=patients)

    def read(self, rows: Sequence[int] | Array) -> Examples:
        """The given examples in memory, in the given order.

        Raises:
            DataError: some cannot be read any more, or the reader gives something else than numbers for each.
        """
        index = np.asarray(rows, dtype=np.int64)
        return self.with_inputs(index, read_inputs(self.reader, self.rows[index]))

    def with_inputs(self, index: Array, inputs: Array) -> Examples:
        """The given examples, whose inputs were read elsewhere."""
        patients = tuple(self.patients[int(i)] for i in index)
        return Examples(inputs, self.labels[index], patients, self.named, self.label_columns)

    def in_memory(self) -> Examples:
        """All of them, however large. Raises as `read`."""
        return self.read(range(len(self)))

    @property
    def bytes(self) -> int:
        """Of all inputs in memory, as the first tells. Raises as `read`."""
        return len(self) * self.read([0]).inputs.nbytes

    def parts(self) -> Iterator[Examples]:
        """All of them, about PART_BYTES at a time. Raises as `read`."""
        size = max(1, PART_BYTES * len(self) // max(1, self.bytes))
        for start in range(0, len(self), size):
            yield self.read(range(start, min(start + size, len(self))))


@dataclass(frozen=True)
class _Chain:
    """The rows of one reader after those of another; starts: where each one's begin, and where the last one's end."""

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
    """All examples of one after those of another. Nobody is anybody else: patients of two are told apart."""
    starts = np.cumsum([0, *(len(examples.reader) for examples in each)])
    reader = _Chain(tuple(examples.reader for examples in each), starts)
    rows = np.concatenate([examples.rows + start for examples, start in zip(each, starts[:-1], strict=True)])
    patients = tuple(f"{place}/{patient}" for place, examples in enumerate(each) for patient in examples.patients)
    labels = np.concatenate([examples.labels for examples in each])
    columns = tuple(dict.fromkeys(name for examples in each for name in examples.label_columns))
    return LazyExamples(
        reader, rows, labels, patients, all(examples.named for examples in each), each[0].read_by, columns
    )


def reads_lazily(records: Sized, lazy: bool | None) -> bool:
    """Are they to be read when they are needed? lazy: None: where they are LARGE."""
    return records.bytes > LARGE if lazy is None else lazy


def read_inputs(reader: Reader, rows: Array) -> Array:
    """What the reader gives of these rows, checked.

    Raises:
        DataError: it failed. Its words are not repeated: they may name a file, and files are named after people.
    """
    try:
        inputs = np.asarray(reader.read(rows))
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            f"inputs: some of {len(rows)} records cannot be read any more ({type(error).__name__}): put back what was "
            "moved, renamed or changed since the records were loaded, and start again; no step was charged for them"
        ) from error
    if inputs.shape[:1] != (len(rows),) or inputs.ndim < 2 or inputs.dtype.kind not in "uif":
        raise DataError("inputs: a reader gives an array of numbers, one row for each record and one further axis")
    return inputs
