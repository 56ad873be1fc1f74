"""Models for losses of users: one for each method by which gradients are computed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from private_learning.gradients import Slots


class Plain(nn.Module):
    """Layer by layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * 2


class Scaled(Plain):
    """By vmap: a parameter that no listed layer has, without an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Branching(Scaled):
    """One by one: vmap knows no Python numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if float(x.sum()) < 1e9 else x


ENGINES = {"layerwise": Plain, "vmap": Scaled, "one by one": Branching}


SLOTS = [None, Slots(16)]


def model_of(engine: str) -> Plain:
    torch.manual_seed(1)
    return ENGINES[engine]()


def without_weights(engine: str) -> Plain:
    """A model whose outputs are 0: what targets do to one another shows in all its strength."""
    model = model_of(engine)
    nn.init.zeros_(model.layer.weight)
    nn.init.zeros_(model.layer.bias)
    return model
