"""Layouts of convolutions: lengths as torch computes them, and groups that can be normalised."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from private_learning.tasks.convolutions import strided, why_not_normalised


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("length", [1, 8, 9, 250])
def test_lengths_are_those_of_padded_convolutions(length: int, kernel: int, stride: int) -> None:
    x, layer = torch.zeros(1, 1, length), nn.Conv1d(1, 1, kernel, stride=stride, padding=kernel // 2)
    for times in range(4):
        assert strided(length, stride, times) == x.shape[2]
        x = layer(x)


@pytest.mark.parametrize(
    ("filters", "groups", "smallest", "reason"),
    [
        (8, 4, 1, None),
        (8, 8, 2, None),
        (8, 3, 9, "groups must divide filters"),
        (8, 8, 1, "one value is all that some groups would hold"),
    ],
)
def test_a_group_of_one_value_cannot_be_normalised(
    filters: int, groups: int, smallest: int, reason: str | None
) -> None:
    problem = why_not_normalised(filters, groups, smallest)
    assert (problem is None) == (reason is None)
    assert (reason or "") in (problem or "")
    if filters % groups == 0:
        # One value in a group is its own mean, whatever it is.
        outputs = nn.GroupNorm(groups, filters)(torch.ones(2, filters, smallest).cumsum(1).cumsum(2))
        assert (float(outputs.detach().abs().max()) > 0.1) == (reason is None)
