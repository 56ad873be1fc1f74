"""Low-rank adapters: merged layers, gradients of single records, and where none can be put."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError
from private_learning.gradients import PerRecordGradients
from private_learning.gradients.inspection import known_layers, trainable
from private_learning.tasks.adapters import LowRank, adapt, merge, within


def _moved(model: nn.Module, seed: int = 0) -> nn.Module:
    """As after some training: no adapter is zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in trainable(model).values():
            p.copy_(0.3 * torch.randn(p.shape, generator=draw))
    return model


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(6, 5), (6,)),
    "linear over places": (nn.Linear(6, 5), (3, 6)),
    "convolution": (nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2), (3, 9, 9)),
    "padding same": (nn.Conv2d(3, 4, 3, padding="same", padding_mode="circular"), (3, 7, 7)),
    "signals": (nn.Conv1d(2, 5, 3, stride=2), (2, 11)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_merged_layer_is_the_same_function_of_its_inputs(name: str) -> None:
    layer, shape = LAYERS[name]
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)).double()
    inputs = torch.randn(4, *shape, dtype=torch.float64)
    model(inputs)
    adapt(model, 2, "3")
    _moved(model)
    expected = model(inputs)
    merged = merge(model)
    assert not any(isinstance(module, LowRank) for module in merged.modules())
    torch.testing.assert_close(merged(inputs), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.quick("linear", "signals")
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_adapters_agree_with_one_backward_for_each_record(name: str) -> None:
    layer, shape = LAYERS[name]
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)).double()
    inputs, targets = torch.randn(6, *shape, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1, 0])
    model(inputs)
    adapt(model, 2, "3")
    _moved(model)
    # Every trained layer has a closed form: nothing is done record by record.
    assert len(known_layers(model)) == 3
    loss = nn.CrossEntropyLoss(reduction="none")
    alone: list[float] = []
    for one in range(len(inputs)):
        model.zero_grad()
        loss(model(inputs[one : one + 1]), targets[one : one + 1]).sum().backward()
        alone.append(
            torch.cat([p.grad.flatten() for p in trainable(model).values() if p.grad is not None]).norm().item()
        )
    norms = PerRecordGradients(model, loss).norms(inputs, targets)
    torch.testing.assert_close(norms.double(), torch.tensor(alone, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_layers_inside_attention_take_no_adapter_and_a_model_of_them_alone_is_refused() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(ConfigurationError, match="no linear layer or convolution"):
        adapt(nn.Sequential(layer, nn.Linear(8, 2)), 2, "1")
    model = nn.Sequential(nn.Linear(5, 8), layer, nn.Linear(8, 2))
    adapt(model, 2, "2")
    assert set(trainable(model)) == {"0.down.weight", "0.up.weight", "2.weight", "2.bias"}
    assert model.eval()(torch.randn(3, 4, 5)).shape == (3, 4, 2)


def test_an_adapter_adds_the_product_of_its_two_layers() -> None:
    torch.manual_seed(1)
    base = nn.Linear(4, 3)
    layer = LowRank(base, 2)
    inputs = torch.randn(5, 4)
    assert torch.equal(layer(inputs), base(inputs))
    _moved(layer)
    expected = inputs @ (base.weight + layer.up.weight @ layer.down.weight).T + base.bias
    torch.testing.assert_close(layer(inputs), expected)
    assert set(trainable(layer)) == {"down.weight", "up.weight"}


def test_a_rank_above_that_of_a_layer_is_refused_with_the_largest() -> None:
    with pytest.raises(ConfigurationError, match="5 × 6, whose rank is at most 5: take lora:5 or less"):
        adapt(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2)), 6, "1")


def test_layers_of_groups_and_of_other_classes_are_left_as_they_are() -> None:
    class Scaled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    model = nn.Sequential(nn.Conv1d(4, 4, 1, groups=2), Scaled(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    adapt(model, 1, "3")
    assert [type(child).__name__ for child in model] == ["Conv1d", "Scaled", "LowRank", "Linear"]
    assert within("3.weight", "3")
    assert within("3", "")
    assert not within("30.weight", "3")
