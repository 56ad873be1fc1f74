"""Places of packed sequences against what torch unpacks, and the shapes that a longest record would decide."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.packing import PackedLayout, Packing

LENGTHS = torch.tensor([2, 5, 1, 4])
STEPS, WIDTH = 7, 3


def sequences(batch_first: bool) -> Tensor:
    x = torch.randn(len(LENGTHS), STEPS, WIDTH, generator=torch.Generator().manual_seed(1))
    return x if batch_first else x.transpose(0, 1)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("ordered", [True, False], ids=["sorted", "unsorted"])
def test_rows_go_where_torch_unpacks_them_and_back(batch_first: bool, ordered: bool) -> None:
    lengths = LENGTHS.sort(descending=True).values if ordered else LENGTHS
    with Packing():
        packed = pack_padded_sequence(sequences(batch_first), lengths, batch_first=batch_first, enforce_sorted=ordered)
    layout = PackedLayout.of(packed)
    padded = layout.padded(packed.data, reverse=False)
    assert layout.steps == STEPS
    assert torch.equal(layout.lengths, lengths)
    unpacked, _ = pad_packed_sequence(packed, total_length=STEPS)
    assert torch.equal(padded, unpacked)
    assert torch.equal(layout.rows(padded, reverse=False), packed.data)
    expected = torch.stack([unpacked[length - 1, record] for record, length in enumerate(lengths.tolist())])
    assert torch.equal(layout.last(padded), expected)


def test_backwards_every_sequence_begins_with_its_own_end() -> None:
    x = sequences(batch_first=True)
    with Packing():
        packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    layout = PackedLayout.of(packed)
    padded = layout.padded(packed.data, reverse=True)
    for record, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(padded[:length, record], x[record, :length].flip(0))
        assert not padded[length:, record].any()
    assert torch.equal(layout.rows(padded, reverse=True), packed.data)


def test_unpacking_to_the_longest_record_is_refused() -> None:
    with Packing():
        packed = pack_padded_sequence(sequences(True), LENGTHS, batch_first=True, enforce_sorted=False)
        with pytest.raises(NotLayerwise, match="total_length"):
            pad_packed_sequence(packed, batch_first=True)
        unpacked, _ = pad_packed_sequence(packed, batch_first=True, total_length=STEPS)
    assert unpacked.shape == (len(LENGTHS), STEPS, WIDTH)


def test_a_sequence_of_unknown_length_is_refused() -> None:
    packed = pack_padded_sequence(sequences(True), LENGTHS, batch_first=True, enforce_sorted=False)
    with pytest.raises(NotLayerwise, match="pack_padded_sequence"):
        PackedLayout.of(packed)
