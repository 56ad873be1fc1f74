"""Inputs of records that are read when they are needed: rows that a task makes when it is asked for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from private_learning.records import DataError, LazyExamples, LazyTable, OnDemand, Records
from private_learning.records.lazy import PART_BYTES, chained
from private_learning.records.lazy_table import stacked

Places = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class LazyInputs:
    """(n, ...) float32, read on demand: `inputs[rows]` is a tensor in memory, `take(rows)` reads no record.

    make          k records -> (k, ...) inputs of each by itself: `private_learning.tasks.reading.Making`
    places        (n,) rows of `records`, or (n, rows) where rows of one patient stand together
    record_shape  shape of the inputs of one row, of this dtype
    """

    make: Callable[[Records], Tensor]
    records: OnDemand
    places: Tensor
    record_shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, make: Callable[[Records], Tensor], records: OnDemand) -> LazyInputs:
        """Return the inputs of all of these records. The first is read, for the shape.

        Raises:
            DataError: it cannot be read, or is no record that the task takes.
        """
        first = make(records.read([0]))
        return cls(make, records, torch.arange(len(records)), tuple(first.shape[1:]), first.dtype)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> torch.Size:
        """As of the tensor that all of them would be."""
        return torch.Size((*self.places.shape, *self.record_shape))

    @property
    def device(self) -> torch.device:
        """Return the device of inputs that are read."""
        return torch.device("cpu")

    def take(self, rows: Sequence[int] | Tensor) -> LazyInputs:
        """Return the given rows, in the given order, without reading. With two axes: those of a patient together."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        return replace(self, places=self.places[index])

    def __getitem__(self, rows: Sequence[int] | Tensor | slice | int) -> Tensor:
        """The given rows in memory, each place read once.

        Raises:
            DataError: a record cannot be read, is of another shape, or becomes NaN or an infinity.
        """
        needed, back = self.needed(rows)
        return self.from_records(self.records.read(needed) if needed.size else None, back)

    def needed(self, rows: Sequence[int] | Tensor | slice | int) -> tuple[Places, Places]:
        """Return (k,) records that the rows are made of, each once, and the place of each, shaped as the rows."""
        places = self.places[rows if isinstance(rows, slice | int) else torch.as_tensor(rows, dtype=torch.int64)]
        needed, back = np.unique(places.numpy(), return_inverse=True)
        return needed, back.reshape(places.shape)

    def from_records(self, examples: Records | None, back: Places) -> Tensor:
        """Return rows out of the records that they need, as `needed` gives both. None: no record.

        Raises as `inputs[rows]`.
        """
        if examples is None:
            return torch.zeros((*back.shape, *self.record_shape), dtype=self.dtype)
        values = self.make(examples)
        if tuple(values.shape[1:]) != self.record_shape or values.dtype != self.dtype:
            raise DataError(f"inputs: some of {len(examples)} records are of another shape than the first")
        # No copy where every row is one record, in their order.
        straight = back.ndim == 1 and np.array_equal(back, np.arange(len(values)))
        return values if straight else values[torch.as_tensor(back)]


Inputs = Tensor | LazyInputs


def take_rows(inputs: Inputs, rows: Sequence[int] | Tensor) -> Inputs:
    """Return the given rows, in the given order. A `LazyInputs` reads no record for it."""
    return inputs.take(rows) if isinstance(inputs, LazyInputs) else inputs[rows]


def parts(inputs: Inputs) -> Iterator[Tensor]:
    """All rows in their order: a tensor as it is, a `LazyInputs` about PART_BYTES at a time."""
    if isinstance(inputs, Tensor):
        yield inputs
        return
    size = max(1, PART_BYTES // max(1, prod(inputs.shape[1:]) * inputs.dtype.itemsize))
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def joined(each: Sequence[Inputs]) -> Inputs:
    """Return all rows of one after those of another, read on demand where one of them is."""
    tensors = [part for part in each if isinstance(part, Tensor)]
    if len(tensors) == len(each):
        return torch.cat(tensors)
    lazy = [part for part in each if isinstance(part, LazyInputs)]
    if len(lazy) < len(each):
        raise DataError("read all records on demand, or all of them into memory")
    starts = np.cumsum([0, *(len(part.records) for part in lazy)])
    places = [part.places + int(start) for part, start in zip(lazy, starts, strict=False)]
    return replace(lazy[0], records=_after_one_another([part.records for part in lazy]), places=torch.cat(places))


def _after_one_another(each: Sequence[OnDemand]) -> OnDemand:
    tables = [part for part in each if isinstance(part, LazyTable)]
    if len(tables) == len(each):
        return stacked(tables)
    return chained([part for part in each if isinstance(part, LazyExamples)])


def in_memory(inputs: Inputs) -> Tensor:
    """All rows as one tensor, however large."""
    return inputs if isinstance(inputs, Tensor) else torch.cat(list(parts(inputs)))
