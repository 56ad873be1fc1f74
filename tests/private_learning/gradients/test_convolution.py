"""Convolutions' closed forms against autograd, over strides, groups, dilations and every kind of padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import convolution
from private_learning.gradients.convolution import ConvLayer

BATCH = 4
ONE: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "dilation": 2, "groups": 2, "bias": False},
    {"kernel_size": 3, "padding": 2, "padding_mode": "circular"},
    {"kernel_size": 4, "padding": "same"},
]
TWO: list[dict[str, Any]] = [
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
    {"kernel_size": 3, "padding": 1, "padding_mode": "reflect", "groups": 2},
    {"kernel_size": 2, "stride": 2, "dilation": 2},
]
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


def made(kind: type[nn.Conv1d] | type[nn.Conv2d], channels: int, how: dict[str, Any]) -> tuple[Any, ...]:
    torch.manual_seed(0)
    module = kind(channels, 2 * channels, **how).double()
    sides = (9,) if kind is nn.Conv1d else (7, 8)
    inputs = torch.randn(BATCH, channels, *sides, dtype=torch.float64)
    layer = ConvLayer("conv", module, {key: key for key, _ in module.named_parameters()})
    signals = torch.randn_like(module(inputs))
    rows = []
    for i in range(BATCH):
        module.zero_grad()
        (module(inputs[i : i + 1]) * signals[i : i + 1]).sum().backward()
        rows.append({key: p.grad.clone() for key, p in module.named_parameters() if p.grad is not None})
    return layer, inputs, signals, rows


def check(layer: ConvLayer, a: Tensor, g: Tensor, rows: list[dict[str, Tensor]]) -> None:
    each, (squares, kept) = layer.per_record(a, g), layer.squares(a, g)
    factors = torch.linspace(-1, 2, BATCH, dtype=torch.float64)
    total = layer.weighted_sum(a, g, dict.fromkeys(layer.names, factors), kept)
    centre = {key: torch.randn_like(value) for key, value in rows[0].items()}
    inner = layer.inner(a, g, centre, kept)
    for key in layer.names:
        true = torch.stack([row[key] for row in rows])
        torch.testing.assert_close(each[key], true)
        torch.testing.assert_close(squares[key], true.flatten(1).square().sum(1))
        torch.testing.assert_close(total[key], torch.einsum("i,i...->...", factors, true))
        torch.testing.assert_close(inner[key], true.flatten(1) @ centre[key].flatten())


def short(value: Any) -> str:
    """A case's name: the layer's class, or its values without the words."""
    return value.__name__ if isinstance(value, type) else " ".join(str(each) for each in value.values())


@pytest.mark.parametrize("keep", [1 << 22, 0], ids=["kept", "again"])
@pytest.mark.parametrize("channels", [2, 6], ids=["few channels", "many channels"])
@pytest.mark.parametrize(
    ("kind", "how"), [(nn.Conv1d, how) for how in ONE] + [(nn.Conv2d, how) for how in TWO], ids=short
)
def test_every_closed_form_is_autograds(
    kind: type[nn.Conv1d] | type[nn.Conv2d], how: dict[str, Any], channels: int, keep: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(convolution, "KEEP", keep)
    monkeypatch.setattr(convolution, "CACHED", 2 * 72 * channels)
    check(*made(kind, channels, how))


@pytest.mark.parametrize("how", TWO, ids=str)
def test_the_gram_form_gives_the_same_norms(how: dict[str, Any]) -> None:
    layer, a, g, rows = made(nn.Conv2d, 4, how)
    true = torch.stack([row["weight"].square().sum() for row in rows])
    torch.testing.assert_close(layer._gram(a, g), true)


def test_where_positions_are_few_the_gram_form_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, a, g, rows = made(nn.Conv1d, 32, {"kernel_size": 9})
    asked: list[int] = []
    plain = layer._gram
    monkeypatch.setattr(layer, "_gram", lambda x, s: asked.append(len(x)) or plain(x, s))
    check(layer, a, g, rows)
    assert asked == [BATCH]


@pytest.mark.parametrize(("kind", "how"), [(nn.Conv1d, ONE[3]), (nn.Conv2d, TWO[0]), (nn.Conv2d, TWO[1])], ids=short)
def test_the_signal_is_the_inputs_gradient(kind: type[nn.Conv1d] | type[nn.Conv2d], how: dict[str, Any]) -> None:
    layer, a, g, _ = made(kind, 4, how)
    x = a.clone().requires_grad_()
    (expected,) = torch.autograd.grad(layer.module(x), x, g)
    torch.testing.assert_close(layer.signal(a, g), expected)
