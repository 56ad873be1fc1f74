"""The comparison that decides whether layer-wise book-keeping is trusted: it passes the right and finds the wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from client_sdk.gradients.errors import NotLayerwise, UnsupportedLayer
from client_sdk.gradients.layers import LinearLayer
from client_sdk.gradients.layerwise import Layerwise
from client_sdk.gradients.probe import a_few, refuse_interaction, repeatable, tolerance, verify

X = torch.linspace(-1, 1, 12).view(3, 4)
Y = torch.tensor([0.0, 1.0, 2.0])
CPU = torch.device("cpu")


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.sum(1) - targets).square()


def test_a_short_batch_is_filled_with_rolled_records() -> None:
    assert torch.equal(a_few(X, 2), X[:2])
    (alone,) = X[:1]
    assert torch.equal(a_few(X[:1], 3), torch.stack([alone, alone.roll(1), alone.roll(2)]))


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
    refuse_interaction(model, loss, X, Y)
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


def test_records_that_meet_are_refused_and_a_moved_buffer_is_put_back() -> None:
    with pytest.raises(UnsupportedLayer, match="other records of its batch"):
        refuse_interaction(Mixing(), loss, X, Y)
    counting = Counting()
    with pytest.raises(UnsupportedLayer, match="'seen'"):
        refuse_interaction(counting, loss, X, Y)
    assert counting.seen == 0


def test_the_allowance_follows_the_precision() -> None:
    assert tolerance(torch.float64, CPU) < tolerance(torch.float32, CPU) < tolerance(torch.bfloat16, CPU)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tolerance(torch.float32, CPU) == tolerance(torch.bfloat16, CPU)
