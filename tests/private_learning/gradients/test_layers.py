"""Every closed form of every layer against autograd, one record and one backward at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import layers
from private_learning.gradients.inspection import RULES
from private_learning.gradients.layers import Layer, combined, gram, squared_norms
from private_learning.gradients.score_variance import ScoreVariance

BATCH = 5
Case = tuple[nn.Module, Tensor]


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


def tokens(*shape: int) -> Tensor:
    return torch.randint(6, shape, generator=torch.Generator().manual_seed(3))


def fixed(norm: nn.Module) -> nn.Module:
    """In eval mode, with statistics as a pretrained model has them."""
    norm.get_buffer("running_mean").copy_(noise(4))
    norm.get_buffer("running_var").copy_(noise(4).square() + 0.1)
    return norm.eval()


CASES: dict[str, Callable[[], Case]] = {
    "linear": lambda: (nn.Linear(4, 3), noise(BATCH, 4)),
    "linear, no bias": lambda: (nn.Linear(4, 3, bias=False), noise(BATCH, 4)),
    "linear, few positions": lambda: (nn.Linear(40, 30), noise(BATCH, 2, 40)),
    "linear, many positions": lambda: (nn.Linear(4, 3), noise(BATCH, 6, 2, 4)),
    "embedding": lambda: (nn.Embedding(6, 3), tokens(BATCH, 4)),
    "embedding, padded": lambda: (nn.Embedding(6, 3, padding_idx=2), tokens(BATCH, 4)),
    "embedding, one token": lambda: (nn.Embedding(6, 3), tokens(BATCH)),
    "layer norm": lambda: (nn.LayerNorm([3, 4]), noise(BATCH, 2, 3, 4)),
    "group norm": lambda: (nn.GroupNorm(2, 4), noise(BATCH, 4, 3, 2)),
    "batch norm, fixed, of vectors": lambda: (fixed(nn.BatchNorm1d(4)), noise(BATCH, 4)),
    "batch norm, fixed, of signals": lambda: (fixed(nn.BatchNorm1d(4)), noise(BATCH, 4, 3)),
    "batch norm, fixed, of images": lambda: (fixed(nn.BatchNorm2d(4)), noise(BATCH, 4, 3, 2)),
    "batch norm, fixed, of volumes": lambda: (fixed(nn.BatchNorm3d(4)), noise(BATCH, 4, 2, 3, 2)),
    "spread": lambda: (ScoreVariance(4, -0.7), noise(BATCH, 4)),
    "instance norm": lambda: (nn.InstanceNorm1d(4, affine=True), noise(BATCH, 4, 6)),
}


def made(name: str) -> tuple[Layer, Tensor, Tensor, list[dict[str, Tensor]]]:
    """(layer, input, output gradients, per record: own name -> gradient by autograd)."""
    torch.manual_seed(0)
    module, inputs = CASES[name]()
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    layer = RULES[type(module)](name, module, {key: f"model.{key}" for key, _ in module.named_parameters()})
    assert isinstance(layer, Layer)
    signals = torch.randn_like(module(inputs))
    rows = []
    for i in range(BATCH):
        module.zero_grad()
        (module(inputs[i : i + 1]) * signals[i : i + 1]).sum().backward()
        rows.append({key: p.grad.clone() for key, p in module.named_parameters() if p.grad is not None})
    return layer, inputs, signals, rows


@pytest.fixture(params=[1 << 22, 0], ids=["gradients kept", "gradients computed again"], autouse=True)
def _keep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "KEEP", request.param)


@pytest.mark.parametrize("name", CASES)
def test_the_four_closed_forms_are_autograds(name: str) -> None:
    layer, a, g, rows = made(name)
    each = layer.per_record(a, g)
    squares, kept = layer.squares(a, g)
    factors = torch.linspace(-1, 2, BATCH, dtype=torch.float64)
    total = layer.weighted_sum(a, g, dict.fromkeys(layer.names, factors), kept)
    centre = {key: torch.randn_like(value) for key, value in rows[0].items()}
    inner = layer.inner(a, g, centre, kept)
    assert set(each) == set(squares) == set(total) == set(inner) == set(layer.names)
    for key in layer.names:
        true = torch.stack([row[key] for row in rows])
        torch.testing.assert_close(each[key], true)
        torch.testing.assert_close(squares[key], true.flatten(1).square().sum(1))
        torch.testing.assert_close(total[key], torch.einsum("i,i...->...", factors, true))
        torch.testing.assert_close(inner[key], true.flatten(1) @ centre[key].flatten())


@pytest.mark.parametrize("name", [name for name in CASES if "embedding" not in name])
def test_forward_and_the_signal_are_the_modules_own(name: str) -> None:
    layer, a, g, _ = made(name)
    torch.testing.assert_close(layer.forward(a), layer.module(a))
    assert not layer.forward(a).requires_grad
    x = a.clone().requires_grad_()
    (expected,) = torch.autograd.grad(layer.module(x), x, g)
    torch.testing.assert_close(layer.signal(a, g), expected)


@pytest.mark.parametrize("name", ["linear", "linear, many positions", "layer norm"])
@pytest.mark.parametrize("key", ["weight", "bias"])
def test_a_frozen_parameter_has_no_gradient(name: str, key: str) -> None:
    layer, a, g, rows = made(name)
    alone = type(layer)(layer.name, layer.module, {key: layer.names[key]})
    squares, kept = alone.squares(a, g)
    assert set(squares) == set(alone.per_record(a, g)) == {key}
    factors = {key: torch.ones(BATCH, dtype=torch.float64)}
    (found,) = alone.weighted_sum(a, g, factors, kept).values()
    torch.testing.assert_close(found, sum(row[key] for row in rows))


def test_norms_of_long_rows_do_not_lose_digits() -> None:
    for width in (1, 511, 512, 513, 100_000):
        values = torch.rand(3, width, generator=torch.Generator().manual_seed(width))
        torch.testing.assert_close(squared_norms(values).double(), values.double().square().sum(1), rtol=5e-6, atol=0)
    assert squared_norms(torch.full((2, 3, 4), 2.0)).tolist() == [48.0, 48.0]


def test_the_gram_form_is_the_direct_form() -> None:
    a, g = noise(BATCH, 7, 4), noise(BATCH, 7, 3)
    direct = torch.einsum("itk,itj->ijk", a, g).flatten(1).square().sum(1)
    torch.testing.assert_close(gram(a, g), direct)


def test_parts_are_weighted_in_order() -> None:
    values, factors = noise(BATCH, 2, 3), torch.arange(5.0, dtype=torch.float64)
    expected = torch.einsum("i,ijk->jk", factors, values)
    for sizes in ([5], [2, 3], [1, 1, 3]):
        torch.testing.assert_close(combined(factors, torch.split(values, sizes)), expected)
