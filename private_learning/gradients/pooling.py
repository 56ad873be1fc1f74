"""Max pooling by vector comparisons, with PyTorch's own choice among equal values.

PyTorch's kernel for the CPU branches on the data and takes longer than the convolutions around it. Here each axis is
folded in turn, last axis first, so that ties go to the first position in reading order, as they do there.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Fold(torch.autograd.Function):
    """The largest entry of each window along one axis. The gradient goes to the first of several."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, width: int, stride: int) -> Tensor:
        largest, *windows = _windows(x, axis, width, stride)
        if stride > 1:
            largest, *windows = (part.contiguous() for part in (largest, *windows))
        later: list[Tensor] = []
        for part in windows:
            # Zeros and ones of the values' own type: products are vectorised, selections by truth values are not.
            later.append(torch.gt(part, largest, out=part.new_empty(part.shape)))
            largest = torch.maximum(largest, part)
        ctx.save_for_backward(*later)
        ctx.fold, ctx.shape = (axis, width, stride), x.shape
        return largest if windows else largest.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        g = grads[0]
        into = g.new_zeros(ctx.shape)
        first, *windows = _windows(into, *ctx.fold)
        # The last winner first: what it takes is not left for those that it beat.
        for part, later in zip(reversed(windows), reversed(ctx.saved_tensors), strict=True):
            share = g * later
            part += share
            g = g - share
        first += g
        return into, None, None, None


def _windows(x: Tensor, axis: int, width: int, stride: int) -> Iterator[Tensor]:
    """Yield views of the first, second, ... entry of every window."""
    span = stride * ((x.shape[axis] - width) // stride) + 1
    for start in range(width):
        yield x[(..., slice(start, start + span, stride)) + (slice(None),) * (-1 - axis)]


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def max_pool(module: nn.MaxPool2d, x: Tensor) -> Tensor:
    """Return module.forward(x), value by value, of a module listed by `max_pools`."""
    (high, wide), (down, right) = _pair(module.kernel_size), _pair(module.stride)
    above, sideways = _pair(module.padding)
    if above or sideways:
        # As PyTorch pads: −∞ never wins.
        x = functional.pad(x, (sideways, sideways, above, above), value=-math.inf)
    return _Fold.apply(_Fold.apply(x, -1, wide, right), -2, high, down)  # type: ignore[no-any-return]


def max_pools(model: nn.Module) -> list[nn.MaxPool2d]:
    """Return the model's layers that `max_pool` can stand in for."""
    return [
        module
        for module in model.modules()
        if type(module) is nn.MaxPool2d
        and not (module.return_indices or module.ceil_mode or "forward" in vars(module))
        and module.dilation in (1, (1, 1))
    ]


@contextmanager
def pooled_by_comparison(layers: Sequence[nn.MaxPool2d]) -> Generator[None]:
    """Run the layers as `max_pool` within the context."""
    for layer in layers:
        vars(layer)["forward"] = partial(max_pool, layer)
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)
