"""Per-record gradients by one backward per record, and what follows from them: nothing of the product's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.inspection import trainable
from private_learning.gradients.layerwise import Layerwise

Loss = Callable[[Tensor, Tensor], Tensor]


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Every output counts, and each differently."""
    flat = outputs.flatten(1)
    return (torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype) * (flat - targets[:, None]) ** 2).sum(1)


def one_by_one(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Parameter name -> (batch, *shape)."""
    parameters, rows = trainable(model), []
    for i in range(len(x)):
        total = loss(model(x[i : i + 1]), y[i : i + 1]).sum()
        rows.append(torch.autograd.grad(total, list(parameters.values()), allow_unused=True, materialize_grads=True))
    return {name: torch.stack([row[k] for row in rows]) for k, name in enumerate(parameters)}


def assert_exact(model: nn.Module, x: Tensor, y: Tensor, loss: Loss = squared_error) -> None:
    """In float64: norms and clipped sums are those of one backward per record; around a centre and in groups, too."""
    torch.manual_seed(7)
    true = one_by_one(model, loss, x, y)
    squares = {name: value.flatten(1).square().sum(1) for name, value in true.items()}
    found = Layerwise(model, loss).run(x, y)
    largest = max(float(value.max()) for value in squares.values())
    for name, value in squares.items():
        torch.testing.assert_close(found.squares[name], value, rtol=1e-9, atol=1e-12 * largest)
    engine = PerRecordGradients(model, loss, method="layerwise")
    norms = torch.stack(list(squares.values())).sum(0).sqrt()
    bound = float(norms.median())
    centre = {name: 0.3 * torch.randn_like(value[0]) for name, value in true.items()}
    groups = [[name] for name in true]
    for middle, apart in ((None, None), (centre, None), (None, groups), (centre, groups)):
        moved = {name: value if middle is None else value - middle[name] for name, value in true.items()}
        done = engine.clipped_sum(x, y, clip_norm=bound, centre=middle, groups=apart)
        assert engine.method == "layerwise"
        for name, value in _clipped(moved, bound, apart).items():
            size = float(value.abs().max()) + bound
            torch.testing.assert_close(done.gradients[name], value, rtol=1e-9, atol=1e-9 * size)


def _clipped(each: dict[str, Tensor], bound: float, groups: Sequence[Sequence[str]] | None) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    for group in [list(each)] if groups is None else groups:
        norms = torch.stack([each[name].flatten(1).square().sum(1) for name in group]).sum(0).sqrt()
        factors = (bound / math.sqrt(1 if groups is None else len(groups)) / norms).clamp(max=1.0)
        out |= {name: torch.einsum("i,i...->...", factors, each[name]) for name in group}
    return out
