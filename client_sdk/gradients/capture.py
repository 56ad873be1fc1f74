"""Run a model so that every known layer leaves its input and its output's gradient behind.

Inside a captured layer the parameters are detached: autograd computes the signals between layers and no parameter
gradient. A parameter that is also used anywhere else still reaches autograd and is found out (see layerwise.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .errors import NotLayerwise
from .layers import Layer


@dataclass
class Use:
    """One call of one layer: its input (batch, ...) and, after backward, its output's gradient (batch, ...).

    leaf: the output itself, where nothing before it needs a gradient; autograd is then asked for its gradient.
    """

    layer: Layer
    input: Tensor
    version: int
    leaf: Tensor | None = None
    output_grad: Tensor | None = None

    @property
    def outputs(self) -> int:
        """Numbers in the output's gradient."""
        return 0 if self.output_grad is None else self.output_grad.numel()

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
    def forward(ctx: Any, x: Tensor, anchor: Tensor | None, use: Use) -> Tensor:
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


class Capture:
    """Within `with`, calls of the layers are recorded, in order, in `uses`.

    anchor: a scalar that requires grad, so that the first layer's output does too; without one that output becomes a
        leaf of the graph, which is cheaper and which the next layer may not change in place.
    """

    def __init__(self, layers: Sequence[Layer], anchor: Tensor | None) -> None:
        self._layers, self._anchor = layers, anchor
        self.uses: list[Use] = []

    def __enter__(self) -> Capture:
        for layer in self._layers:
            vars(layer.module)["forward"] = partial(self._called, layer)
        return self

    def __exit__(self, *_: object) -> None:
        for layer in self._layers:
            vars(layer.module).pop("forward", None)

    def _called(self, layer: Layer, x: Tensor) -> Tensor:
        use = Use(layer, x.detach(), x._version)
        self.uses.append(use)
        if x.requires_grad or self._anchor is not None:
            return _Call.apply(x, self._anchor, use)  # type: ignore[no-any-return]
        y = layer.forward(x)
        if torch.is_grad_enabled():
            use.leaf = y.requires_grad_()
        return y

    def gradients(self, loss: Tensor, parameters: Mapping[str, Tensor]) -> None:
        """Backward. Raises NotLayerwise when a parameter reaches the loss other than through its layer."""
        leaves = [use for use in self.uses if use.leaf is not None]
        wanted = [use.leaf for use in leaves if use.leaf is not None]
        if self._anchor is not None:
            wanted.append(self._anchor)
        found = torch.autograd.grad(loss, [*wanted, *parameters.values()], allow_unused=True)
        for use, grad in zip(leaves, found, strict=False):
            use.output_grad = grad
        for name, grad in zip(parameters, found[len(wanted) :], strict=True):
            if grad is not None:
                raise NotLayerwise(f"parameter {name!r} is used outside of its layer")
