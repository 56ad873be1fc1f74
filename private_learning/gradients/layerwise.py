"""One forward, one backward for the signals between layers, norms in closed form, then the weighted sum.

The model runs so that every known layer leaves its input and its output's gradient behind. Inside a captured layer the
parameters are detached: autograd computes the signals between layers and no parameter gradient. A parameter that is
also used anywhere else still reaches autograd and is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from private_learning.gradients.capture import Capture, Use
from private_learning.gradients.clipping import full_precision
from private_learning.gradients.composite import Composite
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.inspection import known_layers, trainable
from private_learning.gradients.layers import Layer, LinearLayer
from private_learning.gradients.losses import signal_of
from private_learning.gradients.packing import Packing
from private_learning.gradients.pooling import max_pools, pooled_by_comparison
from private_learning.gradients.rows import by_records, rows_beside
from private_learning.gradients.separate import separated
from private_learning.gradients.terms import LayerUse, terms_of

# Rounding allowance of ‖g‖² − 2⟨g, v⟩ + ‖v‖², which may cancel: the distance is only ever rounded up.
CANCELLATION = {torch.float32: 2.0**-19, torch.float64: 2.0**-48}

Loss = Callable[[Tensor, Tensor], Tensor]


class Signals:
    """Inputs and output gradients of one micro-batch, and the norms and sums that follow from them.

    rows: of every record, beside each other along the uses' first axis. The gradient is of all of them together.
    squares: parameter name -> (batch,) squared norms of the per-record gradients.
    finite: (batch, ...) numbers that are all finite where the record's loss is.
    footprint: numbers held per record.
    """

    def __init__(
        self, uses: Sequence[Use], parameters: Mapping[str, Tensor], finite: Tensor, batch: int, rows: int = 1
    ) -> None:
        self.batch, self.finite = batch, finite
        dtype = next(iter(parameters.values())).dtype
        self.squares: dict[str, Tensor] = {}
        self.footprint = sum(use.numbers for use in uses) // batch
        self._centre: Mapping[str, Tensor] | None = None
        self._parameters = parameters
        layer_uses: list[LayerUse] = []
        for use in uses:
            signals = use.checked(batch * rows)
            if signals is not None:
                a, g = signals[0], signals[1].to(dtype)
                # Token numbers stay integers.
                a = a.to(dtype) if a.is_floating_point() else a
                layer_uses.append(LayerUse(*by_records(use.layer, a, g, rows), use.measured))
        self._terms = terms_of(layer_uses, parameters)
        for term in self._terms:
            for name, value in term.squares.items():
                self.squares[name] = self.squares[name] + value if name in self.squares else value
        for name, parameter in parameters.items():
            if name not in self.squares:
                self.squares[name] = parameter.new_zeros(batch)

    def shift(self, centre: Mapping[str, Tensor]) -> None:
        """Replace the gradients by g_i − centre. Squared distances are rounded up."""
        self._centre = centre
        products: dict[str, Tensor] = {}
        for term in self._terms:
            for name, value in term.inner(centre).items():
                products[name] = products[name] + value if name in products else value
        for name, value in centre.items():
            sizes = self.squares[name].double() + value.double().square().sum()
            slack = CANCELLATION.get(value.dtype, 2.0**-19) * sizes
            inner = products[name].double() if name in products else 0.0
            self.squares[name] = (sizes - 2 * inner + slack).clamp_min(0)

    def add_weighted(self, factors: Mapping[str, Tensor], into: dict[str, Tensor], *, release: bool = False) -> None:
        """Add to the sum: into[name] += Σ_i factors[name][i] · gradient_i.

        release: free each layer's signals once they are added. No method may be called afterwards.
        """
        terms = self._terms if release else list(self._terms)
        while terms:
            for name, rows, value in terms.pop(0).sums(factors):
                if rows is None:
                    add(into, name, value)
                else:
                    if name not in into:
                        into[name] = value.new_zeros(self._parameters[name].shape)
                    into[name][rows] += value
        for name, value in (self._centre or {}).items():
            # Σ f_i (g_i − v) = Σ f_i g_i − (Σ f_i) v.
            add(into, name, value * -factors[name].sum())


class Layerwise:
    """Layer-wise book-keeping. Construction raises NotLayerwise when the model has an unknown trainable layer."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, separated(loss)
        self.parameters = trainable(model)
        self.layers = known_layers(model)
        self._pools = max_pools(model)
        self._packs = any(isinstance(layer, Composite) and layer.packs for layer in self.layers)
        self._shapes: dict[object, list[torch.Size]] = {}
        self._signal = signal_of(loss) if ends_in(model, self.layers) else None

    def run(self, inputs: Tensor, targets: Tensor) -> Signals:
        """Return the signals of one micro-batch. Raises NotLayerwise when a parameter is used outside of its layer."""
        pooled = self._pools and inputs.device.type == "cpu"
        with pooled_by_comparison(self._pools) if pooled else nullcontext():
            if self._signal is not None:
                return self._closed(inputs, targets, self._signal)
            return self._captured(inputs, targets)

    def _captured(self, inputs: Tensor, targets: Tensor) -> Signals:
        rows = rows_beside(self.model, inputs)
        with torch.enable_grad(), Capture(self.layers, inputs.device) as capture:
            with Packing() if self._packs else nullcontext():
                outputs = self.model(inputs)
            losses = checked_losses(self.loss, inputs, outputs, targets)
            # A loss that depends on no captured layer has no backward pass.
            if losses.requires_grad:
                if rows == 1:
                    capture.measure_early(len(inputs), next(iter(self.parameters.values())).dtype)
                capture.gradients(losses.sum(), self.parameters)
        if self._packs:
            self._refuse_other_shapes(inputs, capture.uses)
        with full_precision(inputs.device):
            return Signals(capture.uses, self.parameters, losses.detach(), len(inputs), rows)

    def _refuse_other_shapes(self, inputs: Tensor, uses: Sequence[Use]) -> None:
        """Raise NotLayerwise where records of one shape gave other shapes inside the model before."""
        shapes = [use.input.shape[1:] for use in uses]
        if self._shapes.setdefault((inputs.shape[1:], self.model.training), shapes) != shapes:
            raise NotLayerwise(
                "shapes inside of the model follow the lengths of the records: one record's gradient would depend on "
                "the records beside it. Pad to a length that is the same for every batch"
            )

    def _closed(self, inputs: Tensor, targets: Tensor, signal: Loss) -> Signals:
        """Return the signals of the last layer alone: its output gradient is the loss's, in closed form."""
        layer = cast(Layer, self.layers[0])
        with torch.no_grad():
            features = inputs
            for module in list(self.model.children())[:-1]:
                features = module(features)
            outputs = layer.forward(features)
            use = Use(layer, features, features._version, output_grad=signal(outputs, targets))
            with full_precision(inputs.device):
                # Every non-finite input of a linear layer comes out again, as 0 · ∞ is NaN.
                return Signals([use], self.parameters, outputs, len(inputs))


def ends_in(model: nn.Module, layers: Sequence[Layer | Composite]) -> bool:
    """Return whether the only trainable layer is a linear one, at the very end, without hooks."""
    if len(layers) != 1 or not isinstance(layers[0], LinearLayer):
        return False
    last = layers[0].module
    attributes = cast("dict[str, Any]", vars(last))
    # Hooks are run by the module's own call, which the short cut passes by.
    heard = any(attributes[kind] for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"))
    if type(model) is nn.Sequential:
        return model[-1] is last and sum(module is last for module in model) == 1 and not heard
    return model is last and not heard


def add(into: dict[str, Tensor], name: str, value: Tensor) -> None:
    """Add to a running sum. The first value becomes the sum, so `value` must be the caller's own."""
    if name in into:
        into[name] += value
    else:
        into[name] = value


def checked_losses(loss: Loss, inputs: Tensor, outputs: Any, targets: Tensor) -> Tensor:
    """Return (batch,) losses. Raises ValueError: they are not one number for each record."""
    losses = loss(outputs, targets)
    if losses.shape != (len(inputs),):
        mismatch = f"shape ({len(inputs)},), got {tuple(losses.shape)}"
        raise ValueError(f"loss must return one value per record, {mismatch}. Use reduction='none'")
    return losses
