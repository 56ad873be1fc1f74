"""Run a model so that every known layer leaves its input and its output's gradient behind.

Inside a captured layer the parameters are detached: autograd computes the signals between layers and no parameter
gradient. A parameter that is also used anywhere else still reaches autograd and is found out (see layerwise.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .errors import NotLayerwise
from .layers import Layer


@dataclass
class Use:
    """One call of one layer: its input (batch, ...) and, after backward, its output's gradient (batch, ...)."""

    layer: Layer
    input: Tensor
    version: int
    output_grad: Tensor | None = None

    def checked(self, batch: int) -> tuple[Tensor, Tensor] | None:
        """(input, output gradient); None when the loss does not depend on this call."""
        if self.input._version != self.version:
            raise NotLayerwise(f"the input of {self.layer.name!r} was changed in place after the call")
        if self.input.shape[0] != batch:
            raise NotLayerwise(f"{self.layer.name!r} does not see the records along its first axis")
        if self.output_grad is None:
            return None
        return self.input, self.output_grad


class _Call(torch.autograd.Function):
    """The layer's own forward; its backward keeps the output gradient and returns the input's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, use: Use) -> Tensor:
        ctx.use = use
        return use.layer.forward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        use: Use = ctx.use
        use.output_grad = g = grads[0]
        if not ctx.needs_input_grad[0]:
            return None, None, None
        with torch.autocast(g.device.type, enabled=False):
            return use.layer.signal(use.input.to(g.dtype), g), None, None


@contextmanager
def capturing(layers: Sequence[Layer], anchor: Tensor) -> Iterator[list[Use]]:
    """Within the block, calls of `layers` are recorded, in order, in the list it yields.

    anchor: a scalar that requires grad, so that the first layer's output does too.
    """
    uses: list[Use] = []

    def replaced(layer: Layer) -> Any:
        def forward(x: Tensor) -> Tensor:
            use = Use(layer, x.detach(), x._version)
            uses.append(use)
            return _Call.apply(x, anchor, use)  # type: ignore[no-any-return]

        return forward

    changed: list[nn.Module] = []
    try:
        for layer in layers:
            layer.module.forward = replaced(layer)
            changed.append(layer.module)
        yield uses
    finally:
        for module in changed:
            del module.forward
