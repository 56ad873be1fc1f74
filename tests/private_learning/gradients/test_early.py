"""A layer's norms may be taken while the signals of the layers below are still to come; nothing else changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.capture import Capture
from private_learning.gradients.errors import UnsupportedLayer
from private_learning.gradients.inspection import known_layers
from private_learning.gradients.layers import cross_entropy


class Residual(nn.Module):
    """Two paths into one sum, and one layer that is called twice."""

    def __init__(self, *, twice: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.head, self.twice = nn.GroupNorm(2, 4), nn.Linear(4, 3), twice

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.first(x)))
        z = y + self.second(y)
        return self.head((self.second(z) if self.twice else z).flatten(2).mean(2))


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    return torch.randn(5, 2, 6, 6), torch.randint(0, 3, (5,))


@pytest.mark.quick("dtype1-False", "dtype1-True")
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_taken_early_are_bit_by_bit_those_taken_late(
    twice: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = batch()
    model = Residual(twice=twice).to(dtype)
    early = PerRecordGradients(model, cross_entropy, method="layerwise").clipped_sum(x.to(dtype), y, clip_norm=0.1)
    monkeypatch.setattr(Capture, "measure_early", lambda *_: None)
    late = PerRecordGradients(model, cross_entropy, method="layerwise").clipped_sum(x.to(dtype), y, clip_norm=0.1)
    assert torch.equal(early.norms, late.norms)
    for name, value in late.gradients.items():
        assert torch.equal(early.gradients[name], value), name
    for i, norm in enumerate(early.norms):
        model.zero_grad()
        cross_entropy(model(x[i : i + 1].to(dtype)), y[i : i + 1]).sum().backward()
        own = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))  # type: ignore[union-attr,arg-type]
        torch.testing.assert_close(norm, own.double(), rtol=1e-4 if dtype == torch.float32 else 1e-9, atol=0)


def test_what_the_sum_does_not_need_is_let_go_of() -> None:
    x, y = batch()
    model = Residual(twice=False)
    with torch.enable_grad(), Capture(known_layers(model), x.device) as capture:
        losses = cross_entropy(model(x), y)
        capture.measure_early(len(x), torch.float32)
        capture.gradients(losses.sum(), dict(model.named_parameters()))
    held = {use.layer.name: use.input.numel() for use in capture.uses}
    assert held["first"] == held["second"] == held["norm"] == 0
    # One position: the sum is a product of input and gradient, which stay.
    assert held["head"] == 5 * 4
    assert [use.numbers for use in capture.uses] == [5 * 36 * 6, 5 * 36 * 8, 5 * 36 * 8, 5 * 7]


def test_an_input_changed_in_place_is_still_noticed() -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv1d(2, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = x * 1.0
            z = self.layer(y)
            y.add_(1.0)
            return z.sum(2)

    x, y = torch.randn(4, 2, 5), torch.randint(0, 2, (4,))
    with pytest.raises(UnsupportedLayer, match="in place"):
        PerRecordGradients(Changing(), cross_entropy, method="layerwise").norms(x, y)
