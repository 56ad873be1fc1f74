"""Inputs of the coming pass and of the coming step, read while this one is computed.

The reader, the time and the order of reading change no bit: every record is made by itself
(`private_learning.tasks.reading`). The inputs in memory are bounded: the pass that runs, and beside it up to ROOM of
the same step and as much of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from private_learning.gradients.slots import Indexed
from private_learning.records import LazyTable
from private_learning.records.workers import fetched, result_of, threads, workers
from private_learning.tasks.inputs import Inputs, LazyInputs

Rows = NDArray[np.int64]
# Bytes of inputs that are read before they are needed.
ROOM = 1 << 27


class PrefetchedBatches:
    """Batches of a data set's inputs, in memory or read on demand."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._rows: Rows | None = None
        self._pending: PendingRows = {}

    def of(self, rows: Rows, then: Callable[[], Rows] | None = None) -> Tensor | Indexed:
        """Return a step's inputs.

        then: gives the rows of the step after it, and is called once this one's are all being read.
        """
        inputs = self._inputs
        if isinstance(inputs, Tensor):
            return inputs[torch.as_tensor(rows)]
        if inputs.records.read_by == "caller":
            then = None
        pending: PendingRows = {}
        if self._rows is not None and np.array_equal(self._rows, rows):
            pending, self._rows, self._pending = self._pending, None, {}
        return Batch(inputs, rows, pending, None if then is None else lambda: self._follow(inputs, then()))

    def _follow(self, inputs: LazyInputs, rows: Rows) -> None:
        self._rows, self._pending = rows, {}
        _read(inputs, rows, self._pending, room=_room(inputs))


@dataclass(repr=False)
class Batch:
    """One step's inputs: an `Indexed` whose rows are read when they are expected, or else when they are requested.

    pending  the rows that are being read already
    follow   begins to read for the step after this one
    """

    inputs: LazyInputs
    rows: Rows
    pending: PendingRows = field(repr=False)
    follow: Callable[[], None] | None
    _expected: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the tensor that all of them would be."""
        return torch.Size((len(self.rows), *self.inputs.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the inputs."""
        return self.inputs.dtype

    @property
    def device(self) -> torch.device:
        """Return the device of the inputs."""
        return self.inputs.device

    def expect(self, rows: Tensor | slice) -> None:
        """Begin to read these places of the batch. After the last of them, begin to read for the next step."""
        needed = np.unique(self.rows[_places(rows)])
        _read(self.inputs, needed, self.pending, room=_room(self.inputs))
        self._expected += len(needed)
        if self._expected >= len(self.rows) and self.follow is not None:
            follow, self.follow = self.follow, None
            follow()

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Return (k, ...) of these places of the batch. Raises DataError: a record cannot be read."""
        needed, back = np.unique(self.rows[_places(rows)], return_inverse=True)
        _read(self.inputs, needed, self.pending)
        if self.inputs.records.read_by == "caller":
            values = self.inputs[torch.as_tensor(needed)]
        else:
            values = _gathered(self.inputs, needed, self.pending)
        return values if np.array_equal(back, np.arange(len(needed))) else values[torch.as_tensor(back)]


def whole(batch: Tensor | Indexed) -> Tensor:
    """Return all of a batch at once."""
    if not isinstance(batch, Tensor):
        batch.expect(slice(None))
    return batch[:]


@dataclass(frozen=True, repr=False)
class _Block:
    """Rows that are read together. decode: makes their inputs out of the worker's result."""

    coming: Future[Any]
    decode: Callable[[Any], Tensor]

    def wait(self) -> Tensor:
        """Return (rows, ...) their inputs.

        Raises:
            DataError: as when they are read here, or the worker has ended.
        """
        return self.decode(result_of(self.coming))


# Row -> where it is being read, and its place there.
PendingRows = dict[int, tuple[_Block, int]]


def _read(inputs: LazyInputs, rows: Rows, into: PendingRows, *, room: int | None = None) -> None:
    """Begin to read those of the rows that are not pending yet. Afterwards no more than `room` rows are pending."""
    if inputs.records.read_by == "caller":
        return
    needed = [row for row in rows.tolist() if row not in into]
    if room is not None:
        needed = needed[: max(0, room - len(into))]
    size = min(inputs.records.at_once, max(1, -(-len(needed) // (2 * workers()))))
    for start in range(0, len(needed), size):
        part = needed[start : start + size]
        block = _begun(inputs, part)
        into |= {row: (block, place) for place, row in enumerate(part)}


def _gathered(inputs: LazyInputs, rows: Rows, pending: PendingRows) -> Tensor:
    """Return (k, ...) of the rows, which are then no longer pending."""
    values = torch.empty((len(rows), *inputs.shape[1:]), dtype=inputs.dtype)
    blocks: dict[int, tuple[_Block, list[int], list[int]]] = {}
    for place, row in enumerate(rows.tolist()):
        block, at = pending.pop(row)
        _, value_places, block_places = blocks.setdefault(id(block), (block, [], []))
        value_places.append(place)
        block_places.append(at)
    for block, value_places, block_places in blocks.values():
        values[value_places] = block.wait()[block_places]
    return values


def _begun(inputs: LazyInputs, rows: list[int]) -> _Block:
    index, records = torch.tensor(rows), inputs.records
    if isinstance(records, LazyTable) or records.read_by == "threads":
        return _Block(threads().submit(lambda: inputs[index]), lambda values: values)
    needed, back = inputs.needed(index)
    return _Block(
        fetched(records.reader, records.rows[needed]),
        lambda arrays: inputs.from_records(records.with_inputs(needed, arrays), back),
    )


def _room(inputs: LazyInputs) -> int:
    """Return how many rows have ROOM bytes."""
    return max(1, ROOM // max(1, prod(inputs.shape[1:]) * inputs.dtype.itemsize))


def _places(rows: Tensor | slice) -> slice | Rows:
    return rows if isinstance(rows, slice) else rows.cpu().numpy()
