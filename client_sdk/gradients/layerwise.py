"""One forward, one backward for the signals between layers, norms in closed form, then the weighted sum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from .capture import Use, capturing
from .clipping import clip_factors, total_norms
from .errors import NonFiniteError, NotLayerwise
from .inspection import known_layers, trainable
from .layers import Layer, squared_norms

# Rounding allowance of ‖g‖² − 2⟨g, v⟩ + ‖v‖², which may cancel: the distance is only ever rounded up.
CANCELLATION = {torch.float32: 2.0**-19, torch.float64: 2.0**-48}

Loss = Callable[[Tensor, Tensor], Tensor]


class Pass:
    """The signals of one micro-batch and what is computed from them."""

    def __init__(self, uses: Sequence[Use], batch: int, dtype: torch.dtype) -> None:
        self.batch = batch
        calls: dict[str, int] = defaultdict(int)
        for use in uses:
            for name in use.layer.names.values():
                calls[name] += 1
        self.single: list[tuple[Layer, Tensor, Tensor, dict[str, Tensor]]] = []
        self.shared: dict[str, Tensor] = {}
        self.squares: dict[str, Tensor] = {}
        for use in uses:
            signals = use.checked(batch)
            if signals is None:
                continue
            a, g = (s.to(dtype) if s.is_floating_point() else s for s in signals)
            if all(calls[name] == 1 for name in use.layer.names.values()):
                values, kept = use.layer.squares(a, g)
                self.squares |= {use.layer.names[key]: value for key, value in values.items()}
                self.single.append((use.layer, a, g, kept))
            else:
                # Gradients of a parameter used several times add up before the norm is taken.
                for key, value in use.layer.per_record(a, g).items():
                    name = use.layer.names[key]
                    self.shared[name] = self.shared[name] + value if name in self.shared else value
        self.squares |= {name: squared_norms(value) for name, value in self.shared.items()}

    def add_centre(self, centre: Mapping[str, Tensor]) -> None:
        """Turn squared norms into squared distances to the centre, rounded up."""
        for layer, a, g, kept in self.single:
            own = {key: centre[name] for key, name in layer.names.items()}
            for key, value in layer.inner(a, g, own, kept).items():
                self._shift(layer.names[key], value, centre[layer.names[key]])
        for name, value in self.shared.items():
            self._shift(name, value.flatten(1) @ centre[name].flatten(), centre[name])

    def _shift(self, name: str, inner: Tensor, centre: Tensor) -> None:
        sizes = self.squares[name].double() + centre.double().square().sum()
        slack = CANCELLATION.get(centre.dtype, 2.0**-19) * sizes
        self.squares[name] = (sizes - 2 * inner.double() + slack).clamp_min(0)

    def weighted_sum(self, factors: Mapping[str, Tensor], into: dict[str, Tensor]) -> None:
        for layer, a, g, kept in self.single:
            weights = {key: factors[name] for key, name in layer.names.items()}
            for key, value in layer.weighted_sum(a, g, weights, kept).items():
                add(into, layer.names[key], value)
        for name, value in self.shared.items():
            add(into, name, (factors[name] @ value.flatten(1)).view(value.shape[1:]))


class Layerwise:
    """Layer-wise book-keeping. Construction raises NotLayerwise when the model has an unknown trainable layer."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss
        self.parameters = trainable(model)
        self.layers = known_layers(model)

    def run(self, inputs: Tensor, targets: Tensor) -> Pass:
        """One micro-batch. Raises NotLayerwise when a parameter is used outside of its layer."""
        first = next(iter(self.parameters.values()))
        anchor = first.detach().new_zeros((), dtype=torch.float32).requires_grad_()
        with torch.enable_grad(), capturing(self.layers, anchor) as uses:
            losses = checked_losses(self.loss, self.model(inputs), targets, len(inputs))
            wanted = [anchor, *self.parameters.values()]
            found = torch.autograd.grad(losses.sum(), wanted, allow_unused=True) if losses.requires_grad else ()
        for name, grad in zip(self.parameters, found[1:], strict=False):
            if grad is not None:
                raise NotLayerwise(f"parameter {name!r} is used outside of its layer")
        return Pass(uses, len(inputs), first.dtype)

    def norms(self, inputs: Tensor, targets: Tensor) -> Tensor:
        done = self.run(inputs, targets)
        return total_norms(done.squares) if done.squares else inputs.new_zeros(len(inputs), dtype=torch.float64)

    def add(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        clip_norm: float,
        groups: Sequence[Sequence[str]],
        centre: Mapping[str, Tensor] | None,
        into: dict[str, Tensor],
    ) -> Tensor:
        """Add the micro-batch's clipped gradients to `into`; return the (batch,) unclipped norms."""
        done = self.run(inputs, targets)
        zeros = inputs.new_zeros(len(inputs), dtype=torch.float64)
        for name in self.parameters:
            done.squares.setdefault(name, zeros)
        if centre is not None:
            done.add_centre(centre)
        norms = total_norms(done.squares)
        dtype = next(iter(self.parameters.values())).dtype
        factors = clip_factors(done.squares, groups, clip_norm, dtype)
        done.weighted_sum(factors, into)
        if centre is not None:
            for name in self.parameters:
                add(into, name, centre[name] * -factors[name].sum())
        return norms


def add(into: dict[str, Tensor], name: str, value: Tensor) -> None:
    """Add to a running sum; the first value becomes the sum, so `value` must be the caller's own."""
    if name in into:
        into[name] += value
    else:
        into[name] = value


def checked_losses(loss: Loss, outputs: Tensor, targets: Tensor, batch: int) -> Tensor:
    """(batch,) finite losses. Raises NonFiniteError for outputs or losses, ValueError for a reduced loss."""
    if isinstance(outputs, Tensor) and not bool(torch.isfinite(outputs).all()):
        raise NonFiniteError("the model's output")
    losses = loss(outputs, targets)
    if losses.shape != (batch,):
        raise ValueError(
            f"loss must return one value per record, shape ({batch},), got {tuple(losses.shape)}; use reduction='none'"
        )
    if not bool(torch.isfinite(losses).all()):
        raise NonFiniteError("the loss")
    return losses
