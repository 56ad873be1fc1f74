"""Whole gradients of every record, by torch.func or one record at a time: the general fallback."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from private_learning.gradients.clipping import full_precision
from private_learning.gradients.inspection import gradients_of, trainable
from private_learning.gradients.layers import in_rows_of_numbers, squared_norms
from private_learning.gradients.layerwise import Loss, add, checked_losses


class Gradients:
    """Per-record gradients of one micro-batch: parameter name -> (batch, *shape).

    squares: parameter name -> (batch,) squared norms.
    finite: (batch,) numbers that are finite where the record's loss is.
    """

    def __init__(self, each: dict[str, Tensor], finite: Tensor) -> None:
        self.each, self.finite = each, finite
        self.squares = {name: squared_norms(value) for name, value in each.items()}

    def shift(self, centre: Mapping[str, Tensor]) -> None:
        """Replace the gradients by g_i − centre."""
        self.each = {name: value - centre[name] for name, value in self.each.items()}
        self.squares = {name: squared_norms(value) for name, value in self.each.items()}

    def add_weighted(self, factors: Mapping[str, Tensor], into: dict[str, Tensor], *, release: bool = False) -> None:
        """Add to the sum: into[name] += Σ_i factors[name][i] · gradient_i.

        release: free each gradient once it is added. No method may be called afterwards.
        """
        each = self.each if release else dict(self.each)
        for name in list(each):
            value = each.pop(name)
            add(into, name, (factors[name] @ in_rows_of_numbers(value)).view(value.shape[1:]))


class PerRecord:
    """Runs each record as a batch of its own, so that records cannot reach each other.

    vectorised: torch.func.vmap over the micro-batch. Otherwise one backward per record, which is slow and works with
        every
        model that autograd can differentiate.
    """

    def __init__(self, model: nn.Module, loss: Loss, *, vectorised: bool = True) -> None:
        self.model, self.loss, self.vectorised = model, loss, vectorised
        self.parameters = trainable(model)

    def run(self, inputs: Tensor, targets: Tensor) -> Gradients:
        """Return the gradients of one micro-batch."""
        each, losses = self._vectorised(inputs, targets) if self.vectorised else self._one_by_one(inputs, targets)
        with full_precision(inputs.device):
            return Gradients(each, losses)

    def _vectorised(self, inputs: Tensor, targets: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        detached = {name: p.detach() for name, p in self.parameters.items()}
        each = vmap(grad_and_value(self._one_loss), in_dims=(None, 0, 0), randomness="different")
        with warnings.catch_warnings():
            # Operations without a batching rule run in a loop: slower, and exactly as right.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return each(detached, inputs, targets)

    def _one_loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        output = functional_call(self.model, parameters, (x.unsqueeze(0),))
        losses = self.loss(output, y.unsqueeze(0))
        if losses.shape != (1,):
            raise ValueError(f"loss must return one value per record, got shape {tuple(losses.shape)} for one record")
        return losses[0]

    def _one_by_one(self, inputs: Tensor, targets: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        rows = [self._or_nothing(inputs[i : i + 1], targets[i : i + 1]) for i in range(len(inputs))]
        each = {name: torch.stack([row[name] for row, _ in rows]) for name in self.parameters}
        return each, torch.stack([loss for _, loss in rows])

    def _or_nothing(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the same as `of_one`, or NaN where it fails."""
        try:
            return self.of_one(x, y)
        # A user's code may raise anything for one record, which must not stop the others.
        except Exception:  # noqa: BLE001
            missing = {name: torch.full_like(p, torch.nan).detach() for name, p in self.parameters.items()}
            return missing, torch.full((), torch.nan, device=x.device)

    def of_one(self, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return gradients and loss, (), of one record in a batch of its own. Raises what model or loss raise."""
        with torch.enable_grad():
            losses = checked_losses(self.loss, x, self.model(x), y)
            total = losses.sum()
            return gradients_of(total, self.parameters), total.detach().float()
