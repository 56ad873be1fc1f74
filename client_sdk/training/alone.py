"""What a model says of each record, bit by bit the same whoever else is asked about.

Kernels are chosen by shape and round by place, and whoever chose the weights may have put a patient on the edge of a
bin: with plain batches one patient more could move others from one bin to the next, and a count would change by more
than its sensitivity. So all passes have one shape, and a record's place follows from the record alone: its digest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from client_sdk.tasks.inputs import Inputs, parts

# Places of a pass. Of n different records the fullest place has about n/64 and a few more.
_PLACES = 64


def each_alone(compute: Callable[[Tensor], Tensor], inputs: Inputs) -> Tensor:
    """(n, ...) `compute` of n records, (n, ...), one shape at a time; n ≥ 1.

    compute  mixes no records: its first dimension is that of what it is given
    inputs   where they are read on demand, some after the others: no result depends on who is read with whom
    """
    return torch.cat([_together(compute, part) for part in parts(inputs)])


def _together(compute: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    # Equal records have equal results, and would all want one place.
    digests = [hashlib.sha256(record.numpy().tobytes()).digest() for record in inputs.contiguous()]
    first = {digest: row for row, digest in reversed([*enumerate(digests)])}
    passes: dict[int, dict[int, bytes]] = {}
    taken = Counter[int]()
    for digest in first:
        place = int.from_bytes(digest[:8], "big") % _PLACES
        passes.setdefault(taken[place], {})[place] = digest
        taken[place] += 1
    found: dict[bytes, Tensor] = {}
    for held in passes.values():
        # Free places hold a copy of somebody: whatever a model does with zeros, it can do this.
        anybody = next(iter(held.values()))
        rows = torch.tensor([first[held.get(place, anybody)] for place in range(_PLACES)])
        computed = compute(inputs[rows])
        found |= {digest: computed[place] for place, digest in held.items()}
    return torch.stack([found[digest] for digest in digests])
