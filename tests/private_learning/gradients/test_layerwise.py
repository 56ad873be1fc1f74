"""Layer-wise book-keeping against one backward per record: norms, weighted sums, distances to a centre."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.inspection import trainable
from private_learning.gradients.layers import logistic
from private_learning.gradients.layerwise import Layerwise, add, checked_losses, ends_in

BATCH = 4


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten(1).sum(1) - targets).square()


class Twice(nn.Module):
    """One layer called two times: its gradients add up before the norm is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(torch.tanh(self.layer(x))))


class Spare(nn.Module):
    """One layer that is never called: its gradient is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(3, 2), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


MODELS = {
    "plain": lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)),
    "twice": Twice,
    "spare": Spare,
}


def case(name: str) -> tuple[nn.Module, Tensor, Tensor, dict[str, Tensor]]:
    """(model, inputs, targets, name -> (batch, ...) gradients by autograd)."""
    torch.manual_seed(1)
    model = MODELS[name]().double()
    x, y = torch.randn(BATCH, 3, dtype=torch.float64), torch.randn(BATCH, dtype=torch.float64)
    parameters = trainable(model)
    rows = []
    for i in range(BATCH):
        total = loss(model(x[i : i + 1]), y[i : i + 1]).sum()
        found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), found, strict=True)])
    return model, x, y, {name: torch.stack([row[k] for row in rows]) for k, name in enumerate(parameters)}


@pytest.mark.parametrize("name", MODELS)
def test_norms_sums_and_distances_are_autograds(name: str) -> None:
    model, x, y, true = case(name)
    signals = Layerwise(model, loss).run(x, y)
    for key, value in true.items():
        torch.testing.assert_close(signals.squares[key], value.flatten(1).square().sum(1))
    factors = torch.linspace(0.5, 2, BATCH, dtype=torch.float64)
    centre = {key: torch.randn_like(value[0]) for key, value in true.items()}
    for middle in (None, centre):
        if middle is not None:
            signals.shift(middle)
        total: dict[str, Tensor] = {}
        signals.add_weighted(dict.fromkeys(true, factors), total)
        for key, value in true.items():
            moved = value if middle is None else value - middle[key]
            expected = torch.einsum("i,i...->...", factors, moved)
            torch.testing.assert_close(total.get(key, torch.zeros_like(expected)), expected)
            exact = moved.flatten(1).square().sum(1)
            torch.testing.assert_close(signals.squares[key].double(), exact, rtol=1e-9, atol=1e-9)
            assert middle is None or (signals.squares[key] >= exact - 1e-12).all()


def test_released_signals_cannot_be_added_again() -> None:
    model, x, y, true = case("plain")
    signals = Layerwise(model, loss).run(x, y)
    ones = dict.fromkeys(true, torch.ones(BATCH, dtype=torch.float64))
    first: dict[str, Tensor] = {}
    again: dict[str, Tensor] = {}
    signals.add_weighted(ones, first, release=True)
    signals.add_weighted(ones, again)
    assert set(first) == set(true)
    assert again == {}


def test_the_last_layer_alone_has_its_closed_form() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 1)).double()
    x, y = torch.randn(BATCH, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    engine = Layerwise(model, logistic)
    assert engine._signal is not None
    signals = engine.run(x, y)
    for i in range(BATCH):
        weight, bias = torch.autograd.grad(
            logistic(model(x[i : i + 1]), y[i : i + 1]).sum(), list(model[2].parameters())
        )
        torch.testing.assert_close(signals.squares["2.weight"][i], weight.square().sum())
        torch.testing.assert_close(signals.squares["2.bias"][i], bias.square().sum())


def test_somebody_who_listens_in_ends_the_short_cut() -> None:
    model = nn.Sequential(nn.Tanh(), nn.Linear(3, 1))
    layers = Layerwise(model, loss).layers
    assert ends_in(model, layers)
    assert not ends_in(nn.Sequential(model[1], nn.Tanh()), layers)
    assert not ends_in(nn.Sequential(model[1], model[1]), layers)
    handle = model[1].register_forward_hook(lambda *_: None)
    assert not ends_in(model, layers)
    handle.remove()
    assert ends_in(model, layers)


def test_a_loss_is_one_number_per_record() -> None:
    outputs, targets = torch.zeros(2, 1), torch.zeros(2)
    assert checked_losses(loss, outputs, outputs, targets).tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(\)"):
        checked_losses(lambda o, t: loss(o, t).sum(), outputs, outputs, targets)


@pytest.mark.parametrize("method", ["layerwise", "vmap"])
def test_nan_among_the_targets_is_no_fault_where_the_loss_leaves_it_out(method: Any) -> None:
    def known_alone(outputs: Tensor, targets: Tensor) -> Tensor:
        known = ~torch.isnan(targets)
        return torch.where(known, outputs - torch.where(known, targets, 0.0), 0.0).square().sum(1)

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    inputs = torch.randn(5, 3, dtype=torch.float64)
    targets = torch.randn(5, 2, dtype=torch.float64)
    targets[1, 0] = targets[3, 1] = float("nan")
    found = PerRecordGradients(model, known_alone, method=method).norms(inputs, targets)
    for row, norm in enumerate(found.tolist()):
        total = known_alone(model(inputs[row : row + 1]), targets[row : row + 1]).sum()
        true = torch.autograd.grad(total, list(model.parameters()))
        assert norm == pytest.approx(float(torch.cat([g.flatten() for g in true]).norm()), rel=1e-9)


def test_a_model_with_an_unknown_layer_is_not_taken() -> None:
    with pytest.raises(NotLayerwise, match="PReLU"):
        Layerwise(nn.Sequential(nn.Linear(2, 2), nn.PReLU()), loss)


def test_a_first_value_becomes_the_sum() -> None:
    into: dict[str, Tensor] = {}
    first = torch.ones(2)
    add(into, "a", first)
    add(into, "a", torch.ones(2))
    assert into["a"] is first
    assert first.tolist() == [2, 2]
