"""A model without closed forms is named with how much longer it takes, before the first round; others are not."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.generated import Shapes
from private_learning.gradients.layers import squared_error
from private_learning.training.speed import slow_path

SHAPES = Shapes(torch.Size((5, 3)), torch.float32, torch.Size(()), torch.float32)


class Doubled(nn.Linear):
    """Whatever a subclass may compute."""


class OwnGru(nn.GRU):
    """Nothing vectorises it either."""


class Read(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.units, self.head = OwnGru(3, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.units(x)[0][:, -1])


class Packed(nn.Module):
    """Known layers, which book-keeping gives up only when it sees how they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.units, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x[..., 0] != 0).sum(1).clamp(min=1)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        # As long as the longest of the batch.
        return self.head(pad_packed_sequence(self.units(packed)[0], batch_first=True)[0].sum(1))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Sequential(nn.Flatten(), Doubled(15, 1)), "Doubled"),
        (Read(), "OwnGru"),
        (Packed(), "total_length"),
    ],
    ids=["a subclass", "a recurrent subclass", "packed to the batch's longest"],
)
def test_what_is_slow_says_why_and_how_slow(model: nn.Module, reason: str) -> None:
    torch.manual_seed(1)
    found = slow_path(PerRecordGradients(model, squared_error), SHAPES)
    assert found is not None
    assert found.factor > 0
    assert re.search(reason, found.reason), found.reason
    assert f"({found.reason})" in str(found)
    assert "times as long as without privacy" in str(found)


def test_closed_forms_are_not_named() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(15, 1))
    for model in (flat, nn.Sequential(nn.Conv1d(5, 2, 2), nn.Flatten(), nn.Linear(4, 1))):
        assert slow_path(PerRecordGradients(model, squared_error), SHAPES) is None
