"""Records of several rows keep the closed forms: norms and sums are those of one backward per record."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.layers import cross_entropy
from private_learning.training.patients import LossOfPatients, RowsOfPatients


class Pooled(nn.Module):
    """(n, T, width) to (n, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def _grey(bias: bool, groups: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=bias), nn.GroupNorm(2, 4), nn.Tanh(),
        nn.Conv2d(4, 6, 3, padding=1, groups=groups, bias=bias), nn.InstanceNorm2d(6, affine=True), nn.Tanh(),
        nn.Flatten(), nn.Linear(96, 3, bias=bias),
    )  # fmt: skip


def _deep(bias: bool, groups: int) -> nn.Module:
    """Wide channels at few places, which takes the Gram form, and circular padding."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=4, padding=1, padding_mode="circular", bias=bias), nn.Tanh(),
        nn.Conv2d(8, 64, 2, groups=groups, bias=bias), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3, bias=bias),
    )  # fmt: skip


def _signal(bias: bool, groups: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(1, 2), nn.Conv1d(8, 8, 3, dilation=2, groups=groups, bias=bias), nn.Tanh(),
        nn.Conv1d(8, 4, 2, stride=2, bias=bias), nn.Flatten(), nn.Linear(8, 3, bias=bias),
    )  # fmt: skip


def _norms(bias: bool, groups: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(2), nn.Linear(64, 5, bias=bias), nn.LayerNorm(5), Pooled(), nn.Linear(5, 3))


MODELS = {"images": _grey, "few places": _deep, "signals": _signal, "layer norm": _norms}


def one_by_one(model: nn.Module, loss: Any, x: Tensor, y: Tensor, clip_norm: float) -> tuple[Tensor, list[Tensor]]:
    """Norms and clipped sum by a backward pass for each record alone."""
    own, norms = list(model.parameters()), []
    total = [torch.zeros_like(p) for p in own]
    for i in range(len(x)):
        found = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]).sum(), own)
        norm = torch.sqrt(sum((g.square().sum() for g in found), torch.zeros((), dtype=x.dtype)))
        factor = min(1.0, clip_norm * (1 - 2.0**-40) / float(norm))
        total = [t + factor * g for t, g in zip(total, found, strict=True)]
        norms.append(norm)
    return torch.stack(norms), total


@given(
    name=st.sampled_from(list(MODELS)),
    batch=st.integers(1, 5),
    rows=st.integers(1, 4),
    bias=st.booleans(),
    groups=st.sampled_from([1, 2]),
    seed=st.integers(0, 10**6),
    clip_norm=st.sampled_from([1e-2, 0.3, 10.0]),
)
@settings(max_examples=15, deadline=None)
def test_sums_and_norms_are_those_of_one_backward_a_record(
    name: str, batch: int, rows: int, bias: bool, groups: int, seed: int, clip_norm: float
) -> None:
    torch.manual_seed(seed)
    model = RowsOfPatients(MODELS[name](bias, groups).double())
    loss = LossOfPatients(cross_entropy)
    x, y = torch.randn(batch, rows, 1, 8, 8, dtype=torch.float64), torch.randint(0, 3, (batch, rows))
    # Some patients have fewer rows.
    y[0, 1:] = -1
    gradients = PerRecordGradients(model, loss)
    found = gradients.clipped_sum(x, y, clip_norm=clip_norm)
    assert gradients.method == "layerwise", gradients.reason
    norms, total = one_by_one(model, loss, x, y, clip_norm)
    torch.testing.assert_close(found.norms, norms, rtol=1e-9, atol=1e-12)
    for value, expected in zip(found.gradients.values(), total, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    centre = {key: torch.randn_like(value) for key, value in found.gradients.items()}
    moved = gradients.clipped_sum(x, y, clip_norm=1e9, centre=centre)
    whole = one_by_one(model, loss, x, y, 1e9)[1]
    for (key, value), expected in zip(moved.gradients.items(), whole, strict=True):
        torch.testing.assert_close(value, expected - batch * centre[key], rtol=1e-8, atol=1e-9)


def test_a_layer_that_does_not_see_every_row_falls_back() -> None:
    """A first axis of another length than records · rows holds no rows of records."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.all = nn.Linear(64, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.each(x.flatten(1)) + self.all(torch.ones(1, 4))

    gradients = PerRecordGradients(RowsOfPatients(Shifted()), LossOfPatients(cross_entropy))
    x, y = torch.randn(4, 3, 1, 8, 8), torch.zeros(4, 3, dtype=torch.int64)
    norms = gradients.norms(x, y)
    assert gradients.method == "vmap"
    expected, _ = one_by_one(gradients.model, gradients.loss, x, y, 1.0)
    torch.testing.assert_close(norms, expected.double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", list(MODELS))
def test_a_record_s_gradient_does_not_depend_on_who_is_beside_it(name: str) -> None:
    torch.manual_seed(1)
    model, loss = RowsOfPatients(MODELS[name](True, 1)), LossOfPatients(cross_entropy)
    gradients = PerRecordGradients(model, loss)
    x, y = torch.randn(40, 3, 1, 8, 8), torch.randint(0, 3, (40, 3))
    gradients.norms(x, y)
    engine = gradients._engine

    def third(others: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        mixed = torch.cat([others[:2], x[2:3], others[3:]])
        with torch.no_grad():
            done = engine.run(mixed, y)
            only = torch.zeros(40)
            only[2] = 1.0
            into: dict[str, Tensor] = {}
            done.add_weighted(dict.fromkeys(engine.parameters, only), into)
        return into, torch.stack([square[2] for square in done.squares.values()])

    first, squares = third(x)
    for seed in range(3):
        other, again = third(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)) * 10**seed)
        assert torch.equal(squares, again)
        assert all(torch.equal(value, other[key]) for key, value in first.items())
