"""Norms and clipped sums against brute force: one backward per record, nothing shared with the code under test."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients import PerRecordGradients

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
zoo_settings = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Every output entry matters, each with another weight, so that no gradient vanishes by symmetry."""
    flat = outputs.flatten(1)
    weights = torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype)
    return (weights * (flat - targets[:, None]) ** 2).sum(1)


def brute_force(model: nn.Module, inputs: Tensor, targets: Tensor) -> list[list[Tensor]]:
    """Per record, the gradient of each trainable parameter, by autograd on a batch of one."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(inputs)):
        loss = squared_error(model(inputs[i : i + 1]), targets[i : i + 1]).sum()
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)])
    return rows


def norm(gradient: list[Tensor]) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradient))


def check_against_brute_force(model: nn.Module, inputs: Tensor, *, method: str, micro_batch: int = 3) -> None:
    dtype = next(model.parameters()).dtype
    rtol = 1e-9 if dtype == torch.float64 else 1e-4
    targets = torch.linspace(-1, 1, len(inputs), dtype=dtype)
    rows = brute_force(model, inputs, targets)
    true_norms = torch.tensor([norm(row) for row in rows], dtype=torch.float64)
    gradients = PerRecordGradients(model, squared_error, micro_batch=micro_batch)

    found = gradients.norms(inputs, targets)
    assert gradients.method == method, gradients.reason
    torch.testing.assert_close(found, true_norms, rtol=rtol, atol=0)

    clip_norm = float(true_norms.median()) or 1.0
    clipped = gradients.clipped_sum(inputs, targets, clip_norm=clip_norm)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert list(clipped.gradients) == names
    torch.testing.assert_close(clipped.norms, true_norms, rtol=rtol, atol=0)
    for k, name in enumerate(names):
        expected = sum(row[k].double() * min(1.0, clip_norm / norm(row) if norm(row) else 1.0) for row in rows)
        # Relative to what was added up: a sum of contributions may cancel.
        size = float(true_norms.clamp(max=clip_norm).sum())
        assert float((clipped.gradients[name].double() - expected).norm()) <= rtol * size, name


def convolution_1d(draw: Callable, channels: int) -> nn.Module:
    groups = draw(st.sampled_from([1, channels]))
    mode = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    return nn.Conv1d(
        channels, channels * draw(st.integers(1, 2)), draw(st.integers(1, 3)), stride=draw(st.integers(1, 2)),
        padding=draw(st.integers(0, 2)), dilation=draw(st.integers(1, 2)), groups=groups, padding_mode=mode,
        bias=draw(st.booleans()),
    )  # fmt: skip


def convolution_2d(draw: Callable, channels: int) -> nn.Module:
    pairs = st.tuples(st.integers(1, 2), st.integers(1, 2))
    padding = draw(st.sampled_from(["same", "valid", (0, 1), (2, 2)]))
    stride = (1, 1) if padding == "same" else draw(pairs)
    return nn.Conv2d(
        channels, channels * draw(st.integers(1, 2)), (draw(st.integers(1, 3)), draw(st.integers(1, 4))),
        stride=stride, padding=padding, dilation=draw(pairs), groups=draw(st.sampled_from([1, channels])),
        bias=draw(st.booleans()),
    )  # fmt: skip


def convolutional(draw: Callable) -> tuple[nn.Module, Tensor]:
    channels, planes = draw(st.sampled_from([2, 4])), draw(st.sampled_from([1, 2]))
    first = (convolution_1d if planes == 1 else convolution_2d)(draw, channels)
    out = first.out_channels
    norms = [
        nn.Identity(),
        nn.GroupNorm(2, out),
        (nn.InstanceNorm1d if planes == 1 else nn.InstanceNorm2d)(out, affine=True),
    ]
    second = (nn.Conv1d if planes == 1 else nn.Conv2d)(out, 3, 2, padding=1)
    model = nn.Sequential(first, draw(st.sampled_from(norms)), nn.Tanh(), second, nn.Sigmoid())
    return model, torch.randn(draw(st.integers(1, 7)), channels, *(9,) * planes)


def sequence(draw: Callable) -> tuple[nn.Module, Tensor]:
    vocabulary, width, length = draw(st.integers(2, 9)), draw(st.integers(2, 6)), draw(st.integers(1, 6))
    padding = draw(st.sampled_from([None, 0]))
    model = nn.Sequential(
        nn.Embedding(vocabulary, width, padding_idx=padding),
        nn.LayerNorm(width, bias=draw(st.booleans())),
        nn.Linear(width, draw(st.integers(1, 5)), bias=draw(st.booleans())),
        nn.Softplus(),
    )
    return model, torch.randint(0, vocabulary, (draw(st.integers(1, 7)), length))


def perceptron(draw: Callable) -> tuple[nn.Module, Tensor]:
    width, hidden = draw(st.integers(1, 7)), draw(st.integers(2, 6))
    middle = draw(st.sampled_from([(), (3,), (2, 2)]))
    model = nn.Sequential(
        nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.LayerNorm([*middle, hidden]), nn.Linear(hidden, 3)
    )
    return model, torch.randn(draw(st.integers(1, 7)), *middle, width)


@st.composite
def models(draw: Callable) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(draw(st.integers(0, 2**20)))
    model, inputs = draw(st.sampled_from([convolutional, sequence, perceptron]))(draw)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    frozen = draw(st.sets(st.integers(0, 6), max_size=2))
    parameters = list(model.parameters())
    for k in frozen:
        if k < len(parameters) - 1:
            parameters[k].requires_grad_(False)
    return model, inputs


@pytest.mark.slow
@zoo_settings
@given(models())
def test_zoo_in_double_precision(drawn: tuple[nn.Module, Tensor]) -> None:
    model, inputs = drawn
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    check_against_brute_force(model.double(), inputs, method="layerwise")


@pytest.mark.slow
@zoo_settings
@given(models())
def test_zoo_in_single_precision(drawn: tuple[nn.Module, Tensor]) -> None:
    model, inputs = drawn
    check_against_brute_force(model, inputs, method="layerwise")


class Tied(nn.Module):
    """One matrix looks words up and scores them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.score = nn.Embedding(11, 6, padding_idx=0), nn.Linear(6, 11, bias=False)
        self.score.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.embed(x)))


class Repeated(nn.Module):
    """The same convolution and the same linear layer, twice each."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.turn = nn.Conv1d(3, 3, 3, padding=1), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.turn(torch.tanh(self.turn(self.mix(torch.tanh(self.mix(x))))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y += x
        return self.head(torch.relu_(y).flatten(1))


@pytest.mark.quick("Gram linear")
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Tied(), torch.randint(0, 11, (6, 5), generator=torch.Generator().manual_seed(1))),
        (Repeated(), torch.randn(5, 3, 5, generator=torch.Generator().manual_seed(2))),
        (Residual(), torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(3))),
        # Wide layers on few positions take the Gram form; many records overflow what is kept between norm and sum.
        (nn.Sequential(nn.Conv2d(64, 96, 3, groups=2), nn.Tanh()), torch.randn(4, 64, 4, 4)),
        (nn.Sequential(nn.Linear(80, 90), nn.Tanh()), torch.randn(4, 3, 80)),
        (nn.Sequential(nn.Conv2d(40, 70, 5, padding=2), nn.Tanh()), torch.randn(65, 40, 9, 9)),
    ],
    ids=["tied", "repeated", "in-place residual", "Gram convolution", "Gram linear", "too large to keep"],
)
def test_shared_in_place_and_large_layers(model: nn.Module, inputs: Tensor) -> None:
    check_against_brute_force(model, inputs, method="layerwise", micro_batch=65)
    if len(inputs) < 10:
        double = inputs.double() if inputs.is_floating_point() else inputs
        check_against_brute_force(model.double(), double, method="layerwise", micro_batch=65)


def test_dropout_uses_one_mask_per_record_and_keeps_the_generator_in_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 40), nn.Dropout(0.5), nn.Linear(40, 1)).double()
    inputs, targets = torch.ones(4, 5, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    gradients = PerRecordGradients(model, squared_error)
    gradients.norms(inputs, targets)

    torch.manual_seed(7)
    found = gradients.norms(inputs, targets)
    assert gradients.method == "layerwise"
    assert len(found.unique()) == 4
    torch.manual_seed(7)
    losses = squared_error(model(inputs), targets)
    for i in range(4):
        row = torch.autograd.grad(losses[i], list(model.parameters()), retain_graph=True)
        assert float(found[i]) == pytest.approx(norm(list(row)), rel=1e-9)


def test_bfloat16_forward_keeps_float32_norms_and_sums() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    inputs, targets = torch.randn(9, 1, 8, 8), torch.randn(9)
    gradients = PerRecordGradients(model, squared_error)
    exact = gradients.clipped_sum(inputs, targets, clip_norm=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = gradients.clipped_sum(inputs, targets, clip_norm=1.0)
    assert gradients.method == "layerwise"
    assert all(value.dtype == torch.float32 for value in rough.gradients.values())
    torch.testing.assert_close(rough.norms, exact.norms, rtol=0.05, atol=0)


def test_the_answer_does_not_depend_on_micro_batches() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    inputs, targets = torch.randn(10, 4, dtype=torch.float64), torch.randn(10, dtype=torch.float64)
    whole = PerRecordGradients(model, squared_error, micro_batch=10).clipped_sum(inputs, targets, clip_norm=0.3)
    for size in (1, 3, 7):
        split = PerRecordGradients(model, squared_error, micro_batch=size)
        torch.testing.assert_close(split.clipped_sum(inputs, targets, clip_norm=0.3).gradients, whole.gradients)


def test_module_and_parameters_are_left_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    before = {name: p.clone() for name, p in model.named_parameters()}
    PerRecordGradients(model, squared_error).clipped_sum(torch.randn(3, 4), torch.randn(3), clip_norm=1.0)
    assert "forward" not in vars(model[0])
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)
    functional.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 3)).backward()
    assert all(p.grad is not None for p in model.parameters())
