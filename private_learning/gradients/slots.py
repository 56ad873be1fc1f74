"""Places of one public shape for a batch of records, so that no record's gradient depends on who shares its batch.

Kernels are chosen by shape, and other kernels round otherwise: a ReLU at zero is on in one and off in the other, and
whoever chooses the weights can put it there. So records always run in passes of the same shape, each in a slot of its
own; slots that are left over hold copies and count nothing. Within one shape a slot's results depend on what is in the
slot alone.

The places are drawn: a batch of n records takes n of the slots, all choices being equally likely. Leave one record out
and the others have exactly the places that n − 1 records would have drawn. A batch that does not fit takes further
passes of the same shape; who goes there is drawn, too, and one record more moves at most one other there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Deviations of a Poisson batch that fit beside the expected size: room costs time in every step, a batch that does not
# fit costs a further pass and moves one record. With one or two, as many slots run over Poisson batches of 64 to 600;
# with two, one batch in 44 does not fit.
_SLACK = 2.0


class Words(Protocol):
    """A stream of uniform words."""

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]: ...


class Indexed(Protocol):
    """Records that need not lie in memory: those of a pass are asked for when it runs, and foretold before."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor | slice, /) -> Tensor: ...

    def expect(self, rows: Tensor | slice) -> None:
        """These rows are asked for soon."""
        ...


def slots_for(expected_batch_size: float) -> int:
    """How many slots one set has: the expected size and two deviations, by public numbers alone."""
    return max(1, math.ceil(expected_batch_size + _SLACK * math.sqrt(expected_batch_size)))


@dataclass(frozen=True)
class Slots:
    """Where the records of one batch lie.

    capacity  slots in one set, public; rounded up to whole passes
    draw      count -> (count,) uniform 64-bit words; None: in order, for what needs a shape and no law
    """

    capacity: int
    draw: Callable[[int], NDArray[np.uint64]] | None = None

    @classmethod
    def random(cls, expected_batch_size: float, source: Words) -> Slots:
        """Slots for Poisson batches, places drawn from the source."""
        return cls(slots_for(expected_batch_size), lambda count: source.words(count, np.uint64).astype(np.uint64))

    def passes(self, records: int, most: int) -> Iterator[Pass]:
        """Who runs together, pass by pass, all of one shape; passes without a record are left out.

        records  in the batch
        most     records in one pass
        """
        parts = math.ceil(self.capacity / most)
        width = math.ceil(self.capacity / parts)
        start, size = 0, parts * width
        # Places alone are drawn while everybody has one; beyond that also who goes on to further sets.
        order, first = np.arange(records) if records <= size else self._order(records), 0
        while start < records:
            members, holder = order[start : start + size], np.full(size, records)
            holder[self._order(size)[: len(members)]] = members
            # Whoever does not fit needs little room: further sets are one pass each.
            start, size = start + size, width
            for homes in holder.reshape(-1, width):
                free, some = homes == records, homes.min()
                if some < records:
                    # A copy of a record that is there: whatever a model does with zeros, it can do this.
                    rows = np.where(free, some, homes)
                    yield Pass(torch.as_tensor(rows), torch.as_tensor(homes), torch.as_tensor(free), first)
                first += width

    def _order(self, count: int) -> NDArray[np.int64]:
        """A permutation, (count,); every one equally likely but for ties of 64-bit words."""
        return np.arange(count) if self.draw is None else np.argsort(self.draw(count))


@dataclass(frozen=True)
class Pass:
    """One pass: which records of the batch run in which slots.

    rows   row of the batch in every slot, (width,) or a slice; copies of one where the slot is free
    homes  (width,) the same, but one past the batch where the slot is free; None: no slot is
    free   (width,) bool
    first  number of the first slot, among those of all passes of the step
    """

    rows: Tensor | slice
    homes: Tensor | None = None
    free: Tensor | None = None
    first: int = 0

    def of(self, records: Tensor | Indexed) -> Tensor:
        """(width, …) what runs, from (batch, …): a copy, which a model or a loss may change in place."""
        if not isinstance(records, Tensor):
            return records[self.rows]
        if isinstance(self.rows, slice):
            return records[self.rows].clone()
        return records.index_select(0, self.rows)

    def only_taken(self, factors: Tensor) -> Tensor:
        """(width,) factors, 0 in the slots that are free."""
        return factors if self.free is None else factors.masked_fill(self.free, 0.0)

    def put(self, values: Tensor, into: Tensor) -> None:
        """(width,) values of the slots to their records' places in `into`, (batch + 1,); the last is nobody's."""
        into[self.rows if self.homes is None else self.homes] = values

    def to(self, device: torch.device) -> Pass:
        """The same on another device."""
        if isinstance(self.rows, slice) or self.homes is None or self.free is None or device.type == "cpu":
            return self
        return Pass(self.rows.to(device), self.homes.to(device), self.free.to(device), self.first)


def in_order(records: int, most: int) -> Iterator[Pass]:
    """Passes whose shapes follow the size of the batch: nobody is held apart from anybody, and nothing is copied."""
    return (Pass(slice(start, min(start + most, records)), first=start) for start in range(0, records, most))


def foretold(passes: Iterator[Pass], records: Tensor | Indexed) -> Iterator[Pass]:
    """The same passes; records that are read on demand hear of each one pass before it runs."""
    if isinstance(records, Tensor):
        yield from passes
        return
    previous: Pass | None = None
    for coming in passes:
        records.expect(coming.rows)
        if previous is not None:
            yield previous
        previous = coming
    if previous is not None:
        yield previous
