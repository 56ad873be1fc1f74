"""Run a model so that every known layer leaves its input and its output's gradient behind.

Inside a captured layer the parameters are detached: autograd computes the signals between layers and no parameter
gradient. A parameter that is also used anywhere else still reaches autograd and is found out (see layerwise.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from .errors import NotLayerwise
from .layers import Layer


@dataclass
class Use:
    """One call of one layer: its input (batch, ...) and, after backward, its output's gradient (batch, ...)."""

    layer: Layer
    input: Tensor
    version: int
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


class Capture:
    """Within `with`, calls of the layers are recorded, in order, in `uses`."""

    def __init__(self, layers: Sequence[Layer], device: torch.device) -> None:
        self._layers = layers
        # It requires grad, so that the first layer's output does too.
        self._anchor = torch.zeros((), device=device, requires_grad=True)
        self.uses: list[Use] = []

    def __enter__(self) -> Capture:
        for layer in self._layers:
            vars(layer.module)["forward"] = partial(self._called, layer)
        return self

    def __exit__(self, *_: object) -> None:
        for layer in self._layers:
            cast("dict[str, Any]", vars(layer.module)).pop("forward", None)

    def _called(self, layer: Layer, x: Tensor) -> Tensor:
        use = Use(layer, x.detach(), x._version)
        self.uses.append(use)
        return _Call.apply(x, self._anchor, use)  # type: ignore[no-any-return]

    def gradients(self, loss: Tensor, parameters: Mapping[str, Tensor]) -> None:
        """Backward. Raises NotLayerwise when a parameter reaches the loss other than through its layer."""
        _, *found = torch.autograd.grad(loss, [self._anchor, *parameters.values()], allow_unused=True)
        for name, grad in zip(parameters, cast("list[Tensor | None]", found), strict=True):
            if grad is not None:
                raise NotLayerwise(f"parameter {name!r} is used outside of its layer")
