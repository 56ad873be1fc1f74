"""Records whose positions cancel: what has not cancelled yet is large, and must not round the sum over records."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.clipping import clip_factors, total_norms
from private_learning.gradients.convolution import ConvLayer
from private_learning.gradients.layers import Layer, LinearLayer

Case = tuple[Layer, Tensor, Tensor, Callable[[Tensor, Tensor], Tensor]]
SIZE = 1e6


def halves(shape: list[int], axis: int) -> Tensor:
    """Numbers near 1 along an axis, the second half as the first."""
    half = 1 + 0.1 * torch.rand([n // 2 if k == axis else n for k, n in enumerate(shape)])
    return torch.cat([half, half], axis)


def signs(length: int) -> Tensor:
    """(2, length) factors of record 0 and of the others: the second half is nothing, or cancels the first."""
    first, other = torch.ones(length // 2), torch.zeros(length // 2)
    return torch.stack([torch.cat([first, other]), torch.cat([first, -first])])


def sequences(*, time_first: bool) -> Case:
    records, steps, width = 80, 16, 64
    a = torch.randn(width) * halves([records, steps, 1], 1)
    g = SIZE * torch.randn(width) * halves([records, steps, 1], 1)
    g *= torch.cat([signs(steps)[:1], signs(steps)[1:].expand(records - 1, -1)]).unsqueeze(2)
    if time_first:
        a, g = (of.transpose(0, 1).contiguous().transpose(0, 1) for of in (a, g))
    layer = LinearLayer("linear", nn.Linear(width, width, bias=False), {"weight": "weight"})
    return layer, a, g, lambda a, g: g.T @ a


def images(records: int, places: int, channels: int) -> Case:
    # Around a torus, what repeats after half the way is seen twice by every kernel.
    module = nn.Conv2d(channels, channels, 3, padding=1, padding_mode="circular", bias=False)
    a = torch.randn(channels, 1, 1) * halves([records, 1, places, places], 2)
    g = SIZE * torch.randn(channels, 1, 1) * halves([records, 1, places, places], 2)
    g *= torch.cat([signs(places)[:1], signs(places)[1:].expand(records - 1, -1)]).view(records, 1, places, 1)

    def gradient(a: Tensor, g: Tensor) -> Tensor:
        weight = torch.zeros_like(module.weight, dtype=a.dtype, requires_grad=True)
        found = functional.conv2d(functional.pad(a[None], (1, 1, 1, 1), mode="circular"), weight)
        return torch.autograd.grad(found, weight, g[None])[0]

    return ConvLayer("convolution", module, {"weight": "weight"}), a, g, gradient


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: sequences(time_first=False), id="sequences"),
        pytest.param(lambda: sequences(time_first=True), id="sequences, time first"),
        pytest.param(lambda: images(16, 32, 192), id="images"),
        pytest.param(lambda: images(16, 4, 512), id="images of few places"),
    ],
)
def test_one_record_more_does_not_move_others_whose_positions_cancel(made: Callable[[], Case]) -> None:
    """All others cancel exactly and are as large as their norms let them be; the first record comes and goes."""
    torch.manual_seed(0)
    layer, a, g, gradient = made()
    records = len(a)
    squares, kept = layer.squares(a, g)
    # Otherwise whole gradients are added, which is another case.
    assert "weight" not in kept
    factors = clip_factors(squares, total_norms(squares), None, 1.0, torch.float32)["weight"]
    assert float(factors.max()) < 1
    without = factors.clone()
    without[0] = 0.0
    whole, less = (layer.weighted_sum(a, g, {"weight": f}, dict(kept))["weight"].double() for f in (factors, without))
    own = factors[0].double() * gradient(a[0].double(), g[0].double())
    said = PerRecordGradients(layer.module, lambda outputs, _: outputs).rounding(1.0, records)
    assert float((whole - less - own).norm()) <= said + 2.0**-15
    assert float((whole - less).norm()) <= 1 + said
    # Half of what a contribution stays below the clip norm: see SAFETY.
    assert float(own.norm()) <= 1 - 2.0**-15
