"""One forward, one backward for the signals between layers, norms in closed form, then the weighted sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from .capture import Use, capturing
from .errors import NonFiniteError, NotLayerwise
from .inspection import known_layers, trainable
from .layers import Layer, squared_norms

# Rounding allowance of ‖g‖² − 2⟨g, v⟩ + ‖v‖², which may cancel: the distance is only ever rounded up.
CANCELLATION = {torch.float32: 2.0**-19, torch.float64: 2.0**-48}

Loss = Callable[[Tensor, Tensor], Tensor]


class Signals:
    """Inputs and output gradients of one micro-batch, and what follows from them.

    squares: parameter name -> (batch,) squared norms of the per-record gradients.
    """

    def __init__(self, uses: Sequence[Use], parameters: Mapping[str, Tensor], batch: int) -> None:
        dtype = next(iter(parameters.values())).dtype
        calls = Counter(name for use in uses for name in use.layer.names.values())
        self.squares: dict[str, Tensor] = {}
        self._single: list[tuple[Layer, Tensor, Tensor, dict[str, Tensor]]] = []
        self._shared: dict[str, Tensor] = {}
        self._centre: Mapping[str, Tensor] | None = None
        for use in uses:
            signals = use.checked(batch)
            if signals is None:
                continue
            a, g = (s.to(dtype) if s.is_floating_point() else s for s in signals)
            if all(calls[name] == 1 for name in use.layer.names.values()):
                values, kept = use.layer.squares(a, g)
                self.squares |= {use.layer.names[key]: value for key, value in values.items()}
                self._single.append((use.layer, a, g, kept))
            else:
                # Gradients of a parameter used several times add up before the norm is taken.
                for key, value in use.layer.per_record(a, g).items():
                    name = use.layer.names[key]
                    self._shared[name] = self._shared[name] + value if name in self._shared else value
        self.squares |= {name: squared_norms(value) for name, value in self._shared.items()}
        for name, parameter in parameters.items():
            if name not in self.squares:
                self.squares[name] = parameter.new_zeros(batch)

    def shift(self, centre: Mapping[str, Tensor]) -> None:
        """From here on the gradients are g_i − centre; squared distances are rounded up."""
        self._centre = centre
        products: dict[str, Tensor] = {}
        for layer, a, g, kept in self._single:
            own = {key: centre[name] for key, name in layer.names.items()}
            products |= {layer.names[key]: value for key, value in layer.inner(a, g, own, kept).items()}
        products |= {name: value.flatten(1) @ centre[name].flatten() for name, value in self._shared.items()}
        for name, value in centre.items():
            sizes = self.squares[name].double() + value.double().square().sum()
            slack = CANCELLATION.get(value.dtype, 2.0**-19) * sizes
            inner = products[name].double() if name in products else 0.0
            self.squares[name] = (sizes - 2 * inner + slack).clamp_min(0)

    def add_weighted(self, factors: Mapping[str, Tensor], into: dict[str, Tensor]) -> None:
        """into[name] += Σ_i factors[name][i] · gradient_i."""
        for layer, a, g, kept in self._single:
            weights = {key: factors[name] for key, name in layer.names.items()}
            for key, value in layer.weighted_sum(a, g, weights, kept).items():
                add(into, layer.names[key], value)
        for name, value in self._shared.items():
            add(into, name, (factors[name] @ value.flatten(1)).view(value.shape[1:]))
        for name, value in (self._centre or {}).items():
            add(into, name, value * -factors[name].sum())


class Layerwise:
    """Layer-wise book-keeping. Construction raises NotLayerwise when the model has an unknown trainable layer."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss
        self.parameters = trainable(model)
        self.layers = known_layers(model)

    def run(self, inputs: Tensor, targets: Tensor) -> Signals:
        """One micro-batch. Raises NotLayerwise when a parameter is used outside of its layer."""
        wanted = [torch.zeros((), device=inputs.device, requires_grad=True), *self.parameters.values()]
        with torch.enable_grad(), capturing(self.layers, wanted[0]) as uses:
            losses = checked_losses(self.loss, self.model(inputs), targets, len(inputs))
            found = torch.autograd.grad(losses.sum(), wanted, allow_unused=True) if losses.requires_grad else ()
        for name, grad in zip(self.parameters, found[1:], strict=False):
            if grad is not None:
                raise NotLayerwise(f"parameter {name!r} is used outside of its layer")
        with full_precision(inputs.device):
            return Signals(uses, self.parameters, len(inputs))


def full_precision(device: torch.device) -> torch.autocast:
    """Norms and sums stay in the parameters' own precision whatever the forward pass ran in."""
    return torch.autocast(device.type, enabled=False)


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
