"""Records the input and the output's gradient of every known layer while the model runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.layers import Layer, LayerCache


@dataclass(repr=False)
class Use:
    """One call of one layer: its input (batch, ...) and, after backward, its output's gradient (batch, ...).

    version: of the input's memory at the call. A later difference shows a change in place.
    is_exclusive: no other call reaches its parameters, so it can be measured as soon as its gradient is there.
    measured: the result of `layer.squares` at that time. Input and gradient are freed where the sum needs neither.
    """

    layer: Layer
    input: Tensor
    version: int
    output_grad: Tensor | None = None
    is_exclusive: bool = False
    measured: tuple[dict[str, Tensor], LayerCache] | None = None
    _freed: int = 0

    @property
    def numbers(self) -> int:
        """Return how many numbers the input and the output's gradient hold."""
        return self._freed or self.input.numel() + (0 if self.output_grad is None else self.output_grad.numel())

    def measure(self) -> None:
        """Measure norms while the gradient is in the processor's cache, before the layers below add theirs."""
        a, g = self.input, self.output_grad
        if not self.is_exclusive or g is None or a.dtype != g.dtype or self.input._version != self.version:
            return
        self.measured = self.layer.squares(a, g)
        if set(self.measured[1]) == set(self.layer.names):
            self._freed, self.input, self.output_grad = self.numbers, a.new_empty(0), g.new_empty(0)

    def checked(self, batch: int) -> tuple[Tensor, Tensor] | None:
        """Return (input, output gradient), or None when the loss does not depend on this call.

        batch: required length of both.
        """
        if self._freed and self.output_grad is not None:
            return self.input, self.output_grad
        if self.input._version != self.version:
            raise NotLayerwise(f"the input of {self.layer.name!r} was changed in place after the call")
        if self.input.shape[0] != batch:
            raise NotLayerwise(f"{self.layer.name!r} does not see the records along its first axis")
        if self.output_grad is None:
            return None
        return self.input, self.output_grad


class _Call(torch.autograd.Function):
    """Runs the layer's own forward. Its backward keeps the output gradient and returns the input's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, use: Use) -> Tensor:
        ctx.use = use
        return use.layer.forward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        use: Use = ctx.use
        use.output_grad = g = grads[0]
        with torch.autocast(g.device.type, enabled=False):
            input_grad = use.layer.signal(use.input.to(g.dtype), g) if ctx.needs_input_grad[0] else None
            use.measure()
        return input_grad, None, None


class Whole(Protocol):
    """A module of several parts, as `composite.Composite` describes it."""

    module: Any

    def forward(self, capture: Capture, *args: Any, **kwargs: Any) -> Any: ...


class Capture:
    """Within `with`, calls of the layers are recorded, in order, in `uses`.

    anchor: a number that requires grad. A rule passes it to its own autograd function, so that the output requires
        grad.
    """

    def __init__(self, layers: Sequence[Layer | Whole], device: torch.device) -> None:
        self._layers = layers
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        self.uses: list[Use] = []

    def __enter__(self) -> Capture:
        for layer in self._layers:
            # On this one module: its class, and others of its kind, stay as they are.
            forward = partial(self.call, layer) if isinstance(layer, Layer) else partial(layer.forward, self)
            vars(layer.module)["forward"] = forward
        return self

    def __exit__(self, *_: object) -> None:
        for layer in self._layers:
            cast("dict[str, Any]", vars(layer.module)).pop("forward", None)

    def call(self, layer: Layer, x: Tensor) -> Tensor:
        """Return the layer's output and record the use. Autograd takes `layer.signal` for the input's gradient."""
        return _Call.apply(x, self.anchor, self.record(layer, x))  # type: ignore[no-any-return]

    def record(self, layer: Layer, x: Tensor) -> Use:
        """Return a use whose `output_grad` a rule's own backward fills in. While it is None the use adds zero."""
        use = Use(layer, x.detach(), x._version)
        # A layer whose parameters are all frozen has no use to remember.
        if layer.names:
            self.uses.append(use)
        return use

    def measure_early(self, batch: int, dtype: torch.dtype) -> None:
        """Measure calls during the backward pass if no other call reaches their parameters."""
        calls = Counter(name for use in self.uses for name in use.layer.names.values())
        for use in self.uses:
            is_exclusive = all(calls[name] == 1 for name in use.layer.names.values()) and not use.layer.rows
            use.is_exclusive = is_exclusive and use.input.dtype == dtype and len(use.input) == batch

    def gradients(self, loss: Tensor, parameters: Mapping[str, Tensor]) -> None:
        """Backward. Raises NotLayerwise when a parameter reaches the loss other than through its layer."""
        _, *grads = torch.autograd.grad(loss, [self.anchor, *parameters.values()], allow_unused=True)
        for name, grad in zip(parameters, cast("list[Tensor | None]", grads), strict=True):
            if grad is not None:
                raise NotLayerwise(f"parameter {name!r} is used outside of its layer")
