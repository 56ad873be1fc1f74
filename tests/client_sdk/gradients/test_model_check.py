"""The comparison that decides whether layer-wise book-keeping is trusted: it passes the right and finds the wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from client_sdk.gradients.errors import NotLayerwise, UnsupportedLayer
from client_sdk.gradients.layers import LinearLayer
from client_sdk.gradients.layerwise import Layerwise
from client_sdk.gradients.model_check import (
    refuse_memory,
    refuse_mixing,
    repeatable,
    tolerance,
    verify,
    weights_tried,
)

X = torch.linspace(-1, 1, 12).view(3, 4)
Y = torch.tensor([0.0, 1.0, 2.0])
CPU = torch.device("cpu")


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.sum(1) - targets).square()


def test_randomness_is_rewound_inside_and_restored_outside() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with repeatable(CPU) as rewind:
        first = torch.rand(3)
        rewind()
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_right_model_passes_and_tells_what_it_holds() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    refuse_mixing(model, X)
    # Inputs and output gradients of both layers: 4 + 3 + 3 + 2 numbers.
    assert verify(Layerwise(model, loss), X, Y) == 12


def test_a_wrong_closed_form_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Layerwise(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), loss)
    plain = LinearLayer.weighted_sum

    def off(
        self: LinearLayer, a: Tensor, g: Tensor, weights: dict[str, Tensor], kept: dict[str, list[Tensor]]
    ) -> object:
        found = plain(self, a, g, weights, kept)
        return found | ({"bias": found["bias"] * 1.01} if self.name == "1" else {})

    monkeypatch.setattr(LinearLayer, "weighted_sum", off)
    with pytest.raises(NotLayerwise, match=r"'1\.bias' disagrees"):
        verify(engine, X, Y)


def test_a_wrong_norm_alone_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Layerwise(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), loss)
    plain = LinearLayer.squares

    def off(self: LinearLayer, a: Tensor, g: Tensor) -> object:
        values, kept = plain(self, a, g)
        return {key: 1.02 * value for key, value in values.items()}, kept

    monkeypatch.setattr(LinearLayer, "squares", off)
    with pytest.raises(NotLayerwise, match="disagrees"):
        verify(engine, X, Y)


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Counting(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return x


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = 0.0

    def forward(self, x: Tensor) -> Tensor:
        before, self.last = self.last, float(x.mean())
        return x + before


class Sorting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x.sum(1).argsort()]


class Attending(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x @ x.T, 1) @ x


@pytest.mark.parametrize("kind", [Mixing, Sorting, Attending])
def test_records_that_meet_are_refused(kind: type[nn.Module]) -> None:
    for model in (kind(), nn.Sequential(nn.Dropout(0.5), kind())):
        with pytest.raises(UnsupportedLayer, match="other records of its batch"):
            refuse_mixing(model, torch.randn(8, 4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(("kind", "name"), [(Counting, "'seen'"), (Remembering, "'last'")])
def test_what_is_kept_from_call_to_call_is_refused(kind: type[nn.Module], name: str) -> None:
    with pytest.raises(UnsupportedLayer, match=name):
        refuse_memory(kind(), X, 2 * X)


def test_weights_are_tried_and_put_back_whatever_happens() -> None:
    model = nn.Linear(4, 3)
    own = model.weight.detach().clone()
    tried = weights_tried(model)
    next(tried)
    assert not torch.equal(model.weight, own)
    tried.close()
    assert torch.equal(model.weight, own)


def test_the_allowance_follows_the_precision() -> None:
    assert tolerance(torch.float64, CPU) < tolerance(torch.float32, CPU) < tolerance(torch.bfloat16, CPU)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tolerance(torch.float32, CPU) == tolerance(torch.bfloat16, CPU)
