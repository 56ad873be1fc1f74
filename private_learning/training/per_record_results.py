"""Results of a model for each record, bit by bit the same for all sets of other records.

Kernels are chosen by shape and round by place, and an author of the weights may have put a patient on the edge of a
bin. With plain batches one patient more could move others from one bin to the next, and a count would change by more
than its sensitivity. So all passes have one shape, and a record's place follows from the record alone: its digest.

A record that the model fails on is NaN throughout. Each failure follows from the record alone.

A model that turns values into numbers, such as `if (x > 100).any()`, takes one path for the whole pass, and one record
could choose it for all. Such a model gets one record at a time, in a pass of its copies.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn

from private_learning.gradients.reads import follows_values
from private_learning.tasks.inputs import Inputs, parts

# Places of a pass. Of n different records the fullest place has about n/64 and a few more.
_PLACES = 64
Compute = Callable[[Tensor], Tensor]


def each_alone(compute: Compute, inputs: Inputs, model: nn.Module) -> Tensor:
    """Return (n, ...) results of `compute` for n records, (n, ...), one shape at a time, with n ≥ 1.

    Records that it fails on have NaN.

    compute  mixes no records. Its first dimension is that of its argument, and it gives floating numbers.
    model    within `compute`, examined with it: whether one record's values decide how others are treated
    inputs   read on demand in parts: no result depends on the records that are read together

    Raises the error of `compute` for records of zeros, where it fails on all records: no record is to blame for that.
    """
    zeros = torch.zeros((_PLACES, *inputs.shape[1:]), dtype=inputs.dtype)
    copies = _reads(compute, model, zeros)
    results = [rows for part in parts(inputs) for rows in _together(compute, part, copies)]
    like = next((row for row in results if row is not None), None)
    if like is None:
        like = compute(zeros)[0]
    missing = torch.full_like(like, torch.nan)
    return torch.stack([missing if row is None else row for row in results])


class _Whole(nn.Module):
    """The whole computation of a pass, as one module: the part behind the model may read values, too."""

    def __init__(self, compute: Compute, model: nn.Module) -> None:
        super().__init__()
        self._compute, self._model = compute, model

    def forward(self, inputs: Tensor) -> Tensor:
        return self._compute(inputs)


def _reads(compute: Compute, model: nn.Module, zeros: Tensor) -> bool:
    """Return whether values are read: of no record here, as all take one way up to the first reading."""
    try:
        return follows_values(_Whole(compute, model), zeros)
    except torch.OutOfMemoryError:
        raise
    # A model may fail on zeros: one record at a time is right for every model.
    except Exception:  # noqa: BLE001
        return True


def _together(compute: Compute, inputs: Tensor, copies: bool) -> list[Tensor | None]:
    """Return the result for each record, or None where the model fails on it.

    copies: each record runs in a pass of its own copies.
    """
    # Equal records have equal results, and would all want one place.
    digests = [hashlib.sha256(record.numpy().tobytes()).digest() for record in inputs.contiguous()]
    first = {digest: row for row, digest in reversed([*enumerate(digests)])}
    passes: dict[int, dict[int, bytes]] = {}
    counts = Counter[int]()
    for digest in first:
        place = int.from_bytes(digest[:8], "big") % _PLACES
        passes.setdefault(counts[place], {})[place] = digest
        counts[place] += 1
    results: dict[bytes, Tensor | None] = {}
    for occupants in passes.values():
        # Free places hold a copy of a real record: a model that fails on zeros can still do this.
        anybody = next(iter(occupants.values()))
        rows, places = [first[occupants.get(place, anybody)] for place in range(_PLACES)], list(occupants)
        each = _one_by_one if copies else _computed
        results |= zip(occupants.values(), each(compute, inputs, rows, places), strict=True)
    return [results[digest] for digest in digests]


def _computed(compute: Compute, inputs: Tensor, rows: list[int], places: list[int]) -> list[Tensor | None]:
    """Return the results of one pass in these places.

    If the pass fails, each record is tried in a pass of copies of itself.
    """
    try:
        computed = compute(inputs[torch.tensor(rows)])
        return [computed[place] for place in places]
    except torch.OutOfMemoryError:
        raise
    # A user's code may raise anything for one record, which must not stop the others.
    except Exception:  # noqa: BLE001
        return _one_by_one(compute, inputs, rows, places)


def _one_by_one(compute: Compute, inputs: Tensor, rows: list[int], places: list[int]) -> list[Tensor | None]:
    return [_or_nothing(compute, inputs, rows[place], place) for place in places]


def _or_nothing(compute: Compute, inputs: Tensor, row: int, place: int) -> Tensor | None:
    try:
        return compute(inputs[torch.full((_PLACES,), row)])[place]
    except torch.OutOfMemoryError:
        raise
    # As above: this record is the one that is to blame.
    except Exception:  # noqa: BLE001
        return None
