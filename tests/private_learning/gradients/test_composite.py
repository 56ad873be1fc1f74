"""A module of several affine maps: its parts are recorded, its gradients autograd's, and what it does not know said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.capture import Capture
from private_learning.gradients.composite import Affine, Composite
from private_learning.gradients.errors import NotLayerwise, UnsupportedLayer
from private_learning.gradients.inspection import RULES, known_layers, trainable
from private_learning.gradients.layers import Layer


class Gate(nn.Module):
    """Two inputs, two outputs: x W_in + u + W_out's, where W_out's part may be left out of what is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight_in, self.bias_in = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3))
        self.out = nn.Linear(3, 3, bias=False)

    def forward(self, x: Tensor, u: Tensor, *, product: bool = True) -> tuple[Tensor, Tensor]:
        inner = torch.tanh(nn.functional.linear(x, self.weight_in, self.bias_in) + u)
        scaled = inner @ self.out.weight.T
        return inner * scaled if product else inner, scaled


class GateRule(Composite):
    def __init__(self, name: str, module: nn.Module, names: dict[str, str]) -> None:
        super().__init__(name, module, names)
        self.inner = Affine(name, module, names, "weight_in", "bias_in")
        self.outer = Affine(name, module, names, "out.weight")

    @staticmethod
    def expected(module: Any) -> set[str]:
        return {"weight_in", "bias_in", "out.weight", "out.bias"}

    @property
    def parts(self) -> Sequence[Layer]:
        return self.inner, self.outer

    def forward(self, capture: Capture, *args: Any, **kwargs: Any) -> Any:
        x, u = args
        inner = torch.tanh(capture.call(self.inner, x) + u)
        # A part whose gradient the rule fills in itself.
        use, scaled = capture.record(self.outer, inner), self.outer.forward(inner)
        scaled.register_hook(lambda g: setattr(use, "output_grad", g))
        return inner * scaled if kwargs.get("product", True) else inner, scaled


class Gated(nn.Module):
    def __init__(self, *, product: bool) -> None:
        super().__init__()
        self.first, self.gate, self.product = nn.Linear(4, 3), Gate(), product

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x, self.first(x), product=self.product)[0].sum(1)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, Gate, GateRule)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square()


@pytest.mark.parametrize("product", [True, False], ids=["both maps", "the second without effect"])
def test_norms_and_sums_are_autograds(product: bool) -> None:
    torch.manual_seed(0)
    model = Gated(product=product).double()
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    by_parts = PerRecordGradients(model, squared, method="layerwise").clipped_sum(x, y, clip_norm=1.0)
    each = PerRecordGradients(model, squared, method="vmap").clipped_sum(x, y, clip_norm=1.0)
    torch.testing.assert_close(by_parts.norms, each.norms)
    assert set(by_parts.gradients) == set(trainable(model))
    for name, value in each.gradients.items():
        torch.testing.assert_close(by_parts.gradients[name], value)
    assert bool(by_parts.gradients["gate.out.weight"].any()) is product


def test_its_children_are_its_own_and_frozen_parts_are_not_recorded() -> None:
    model = Gated(product=True)
    model.gate.out.requires_grad_(False)
    layers = known_layers(model)
    assert [type(layer).__name__ for layer in layers] == ["LinearLayer", "GateRule"]
    assert layers[1].names == {"weight_in": "gate.weight_in", "bias_in": "gate.bias_in"}
    with Capture(layers, torch.device("cpu")) as capture:
        model(torch.randn(2, 4))
    assert len(capture.uses) == 2
    assert "forward" not in vars(model.gate)


def test_a_changed_module_is_not_taken() -> None:
    for change in (
        lambda gate: gate.register_parameter("more", nn.Parameter(torch.zeros(1))),
        lambda gate: setattr(gate, "out", nn.Sequential(gate.out)),
        lambda gate: setattr(gate, "forward", torch.sin),
    ):
        model = Gated(product=True)
        change(model.gate)
        with pytest.raises(NotLayerwise, match="re-parametrised or patched"):
            known_layers(model)


def test_a_wrong_rule_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GateRule, "forward", lambda self, capture, x, u, product: (x[:, :3] + u, u))
    gradients = PerRecordGradients(Gated(product=True), squared, method="layerwise")
    with pytest.raises(UnsupportedLayer, match="disagrees"):
        gradients.norms(torch.randn(5, 4), torch.randn(5))
