"""Slots of one public shape for a batch of records, so that no record's gradient depends on the rest of its batch.

Kernels are chosen by shape, and other kernels round otherwise. A ReLU at zero is on in one and off in the other, and
an author of the weights can put it there. So records always run in passes of the same shape, each in a slot of its
own. Slots that are left over hold copies and count zero. Within one shape a slot's results depend on the content of the
slot alone.

The places are drawn: a batch of n records takes n of the slots, all choices being equally likely. Leave one record out
and the others have exactly the places that n − 1 records would have drawn. A batch that does not fit takes further
passes of the same shape. Their records are drawn, too, and one record more moves at most one other there.
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
# fit costs a further pass and moves one record. With one or two, as many slots run over Poisson batches of 64 to 600.
# With two, one batch in 44 does not fit.
_SLACK = 2.0


class Words(Protocol):
    """A stream of uniform words."""

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]: ...


class Indexed(Protocol):
    """Records that need not lie in memory. Those of a pass are requested when it runs, and announced before."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor | slice, /) -> Tensor: ...

    def expect(self, rows: Tensor | slice) -> None:
        """Announce that these rows are needed soon."""
        ...


def slots_for(expected_batch_size: float) -> int:
    """Return the number of slots in one set: the expected size and two deviations, by public numbers alone."""
    return max(1, math.ceil(expected_batch_size + _SLACK * math.sqrt(expected_batch_size)))


@dataclass(frozen=True)
class Slots:
    """The slots of one batch.

    capacity  slots in one set, public, rounded up to whole passes
    draw      count -> (count,) uniform 64-bit words. None for slots in order, for purposes that need a shape and no
              law.
    """

    capacity: int
    draw: Callable[[int], NDArray[np.uint64]] | None = None

    @classmethod
    def random(cls, expected_batch_size: float, source: Words) -> Slots:
        """Slots for Poisson batches, places drawn from the source."""
        return cls(slots_for(expected_batch_size), lambda count: source.words(count, np.uint64).astype(np.uint64))

    def passes(self, records: int, max_records: int) -> Iterator[Pass]:
        """Yield the passes of a batch, all of one shape. Passes without a record are left out.

        records      in the batch
        max_records  in one pass
        """
        parts = math.ceil(self.capacity / max_records)
        width = math.ceil(self.capacity / parts)
        start, size = 0, parts * width
        # Places alone are drawn while every record has one. Beyond that, the records of further sets are drawn, too.
        order, first = np.arange(records) if records <= size else self._order(records), 0
        while start < records:
            members, holder = order[start : start + size], np.full(size, records)
            holder[self._order(size)[: len(members)]] = members
            # The records that do not fit need little room: further sets are one pass each.
            start, size = start + size, width
            for homes in holder.reshape(-1, width):
                free, some = homes == records, homes.min()
                if some < records:
                    # A copy of a real record: a model that fails on zeros can still do this.
                    rows = np.where(free, some, homes)
                    yield Pass(torch.as_tensor(rows), torch.as_tensor(homes), torch.as_tensor(free), first)
                first += width

    def _order(self, count: int) -> NDArray[np.int64]:
        """Return a permutation, (count,). Each is equally likely but for ties of 64-bit words."""
        return np.arange(count) if self.draw is None else np.argsort(self.draw(count))


@dataclass(frozen=True, repr=False)
class Pass:
    """One pass: which records of the batch run in which slots.

    rows   row of the batch in every slot, (width,) or a slice. Copies of one where the slot is free.
    homes  (width,) the same, but one past the batch where the slot is free. None where no slot is.
    free   (width,) bool
    first  number of the first slot, among those of all passes of the step
    """

    rows: Tensor | slice
    homes: Tensor | None = None
    free: Tensor | None = None
    first: int = 0

    def of(self, records: Tensor | Indexed) -> Tensor:
        """Return (width, …) rows that run, from (batch, …): a copy, which a model or a loss may change in place."""
        if not isinstance(records, Tensor):
            return records[self.rows]
        if isinstance(self.rows, slice):
            return records[self.rows].clone()
        return records.index_select(0, self.rows)

    def only_taken(self, factors: Tensor) -> Tensor:
        """Return (width,) factors, 0 in the slots that are free."""
        return factors if self.free is None else factors.masked_fill(self.free, 0.0)

    def put(self, values: Tensor, into: Tensor) -> None:
        """Write (width,) values of the slots to their records' places in `into`, (batch + 1,).

        The last belongs to no record.
        """
        into[self.rows if self.homes is None else self.homes] = values

    def to(self, device: torch.device) -> Pass:
        """Return the same pass on another device."""
        if isinstance(self.rows, slice) or self.homes is None or self.free is None or device.type == "cpu":
            return self
        return Pass(self.rows.to(device), self.homes.to(device), self.free.to(device), self.first)


def in_order(records: int, max_records: int) -> Iterator[Pass]:
    """Return passes whose shapes follow the size of the batch. They copy no record and hold none apart."""
    return (
        Pass(slice(start, min(start + max_records, records)), first=start) for start in range(0, records, max_records)
    )


def foretold(passes: Iterator[Pass], records: Tensor | Indexed) -> Iterator[Pass]:
    """Yield the same passes. Records that are read on demand hear of each one pass before it runs."""
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
