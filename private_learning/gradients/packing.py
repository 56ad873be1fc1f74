"""Sequences of unequal length, packed as torch packs them, in places whose shape no record's length decides.

`pack_padded_sequence` sorts records by their length and cuts off the part behind the longest of the batch. Computed
that way, a record's numbers would depend in their last digits on the records beside it. So they are put back into the
tensor's own public shape. For this purpose packing is watched for the length of the tensor that was packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from private_learning.gradients.errors import NotLayerwise

# On the tensor of batch sizes, which goes from one packed sequence to the next.
_MARK = "_length_of_the_padded_tensor"


class Packing(TorchFunctionMode):
    """Makes packed sequences remember, within `with`, the length of the tensor that they were packed from."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_pad_packed_sequence":
            _refuse_other_length(*args[1:5:3])
        result = cast(Callable[..., Any], func)(*args, **(kwargs or {}))
        if name == "_pack_padded_sequence":
            padded, _, batch_first = args
            setattr(result[1], _MARK, padded.shape[1 if batch_first else 0])
        return result


def _refuse_other_length(batch_sizes: Tensor, length: int) -> None:
    public = getattr(batch_sizes, _MARK, length)
    if length != public:
        raise NotLayerwise(
            "pad_packed_sequence gives shapes that follow the longest record of the batch: pass "
            "total_length=<the second size of the padded tensor (the first with batch_first=False)>"
        )


@dataclass(frozen=True, repr=False)
class PackedLayout:
    """Places of a packed sequence's rows in a tensor (steps, records, …), forwards and backwards.

    lengths: (records,). forwards, back: row -> step · records + record. Backwards a sequence begins with its own end.
    """

    steps: int
    lengths: Tensor
    forwards: Tensor
    back: Tensor

    @classmethod
    def of(cls, packed: PackedSequence) -> PackedLayout:
        """Return the layout of a packed sequence.

        Raises NotLayerwise for a sequence that `pack_padded_sequence` did not pack within `Packing`.
        """
        sizes, device = packed.batch_sizes, packed.data.device
        steps = getattr(sizes, _MARK, None)
        if steps is None:
            raise NotLayerwise("a packed sequence was not made by pack_padded_sequence inside of the model")
        is_real = torch.arange(int(sizes[0])) < sizes[:, None]
        step, place = (indices.to(device) for indices in is_real.nonzero(as_tuple=True))
        lengths = is_real.sum(0).to(device)
        ends = lengths[place] - 1 - step
        record = place if packed.sorted_indices is None else packed.sorted_indices[place]
        if packed.unsorted_indices is not None:
            lengths = lengths[packed.unsorted_indices]
        records = len(lengths)
        return cls(steps, lengths, step * records + record, ends * records + record)

    def padded(self, rows: Tensor, reverse: bool) -> Tensor:
        """Return (steps, records, width) from (rows, width), zero behind the ends."""
        room = rows.new_zeros(self.steps * len(self.lengths), rows.shape[1])
        return room.index_copy(0, self.back if reverse else self.forwards, rows).view(self.steps, -1, rows.shape[1])

    def rows(self, padded: Tensor, reverse: bool) -> Tensor:
        """Return (rows, width) from (steps, records, width)."""
        return padded.flatten(0, 1).index_select(0, self.back if reverse else self.forwards)

    def last(self, padded: Tensor) -> Tensor:
        """Return (records, width): each sequence's own last step."""
        return padded[self.lengths - 1, torch.arange(len(self.lengths), device=padded.device)]
