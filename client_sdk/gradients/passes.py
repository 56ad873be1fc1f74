"""One pass of a step: what is asked of it, and what it gives. The same on every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from client_sdk.gradients.clipping import clip_factors, full_precision, total_norms
from client_sdk.gradients.layerwise import Layerwise, Loss
from client_sdk.gradients.per_record import PerRecord

Engine = Layerwise | PerRecord


@dataclass(frozen=True)
class Asked:
    """Norms alone, or the clipped sum as well.

    clip_norm  None: norms alone
    groups     parameters that are clipped separately; None: all together
    centre     parameter name -> tensor that is taken off every gradient
    """

    clip_norm: float | None = None
    groups: Sequence[Sequence[str]] | None = None
    centre: Mapping[str, Tensor] | None = None

    def to(self, device: torch.device) -> Asked:
        """The same on another device."""
        if self.centre is None:
            return self
        return Asked(self.clip_norm, self.groups, {name: value.to(device) for name, value in self.centre.items()})


@dataclass(frozen=True)
class Found:
    """What a pass gives.

    norms  (width,) float64 of the records in its slots, before clipping
    sum    parameter name -> Σ of the clipped gradients of taken slots; empty where norms alone were asked for
    """

    norms: Tensor
    sum: dict[str, Tensor]


def run(engine: Engine, x: Tensor, y: Tensor, only: Callable[[Tensor], Tensor], asked: Asked) -> Found:
    """One pass over records on the model's device.

    only  factors -> factors, 0 for slots that are free

    Raises:
        NonFiniteError: NaN or an infinity in records, outputs, losses or gradients.
        NotLayerwise: book-keeping does not describe the model on these records.
    """
    with torch.no_grad():
        done = engine.run(x, y)
        with full_precision(x.device):
            if asked.centre is not None:
                done.shift(asked.centre)
            norms = total_norms(done.squares)
            if asked.clip_norm is None:
                return Found(norms, {})
            dtype = next(iter(engine.parameters.values())).dtype
            factors = clip_factors(done.squares, norms, asked.groups, asked.clip_norm, dtype)
            part: dict[str, Tensor] = {}
            done.add_weighted({name: only(value) for name, value in factors.items()}, part, release=True)
            return Found(norms, part)


def engine(method: str, model: nn.Module, loss: Loss) -> Engine:
    """What computes a pass by a method that is chosen already."""
    return Layerwise(model, loss) if method == "layerwise" else PerRecord(model, loss, vectorised=method == "vmap")
