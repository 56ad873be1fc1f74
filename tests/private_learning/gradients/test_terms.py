"""Parameters that act at several places: cells in a loop, one layer called twice, tables tied to the last layer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients, layers, terms
from private_learning.gradients.layers import EmbeddingLayer, LinearLayer, gram
from private_learning.gradients.terms import LayerUse, TiedWeights
from tests.private_learning.gradients.references import assert_exact, squared_error


class Cell(nn.Module):
    """A recurrent cell as somebody writes it by hand, over (batch, steps, width)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inward, self.onward = nn.Linear(width, hidden), nn.Linear(hidden, hidden, bias=False)
        self.head = nn.Linear(hidden, 2)
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), self.hidden)
        for step in range(x.shape[1]):
            state = torch.tanh(self.inward(x[:, step]) + self.onward(state))
        return self.head(state)


class Language(nn.Module):
    """The table of the tokens is the last layer's weight; tokens may be looked up a second time."""

    def __init__(self, tokens: int, width: int, padding: int | None, again: str) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, width, padding_idx=padding)
        self.second = nn.Embedding(tokens, width, padding_idx=0 if again == "other padding" else padding)
        self.body, self.head = nn.Linear(width, width), nn.Linear(width, tokens, bias=again != "once")
        self.head.weight = self.second.weight = self.table.weight
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        found = torch.tanh(self.body(self.table(x)))
        return self.head(found if self.again == "once" else found + self.second(x.flip(1)))


class Siamese(nn.Module):
    """One network for both halves: convolutions and normalisations that are used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 3, 3, padding=1), nn.GroupNorm(1, 3)
        self.head = nn.Linear(3, 2)
        self.twin = nn.Linear(3, 2)
        self.twin.weight = self.head.weight

    def one(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.conv(x.unsqueeze(1)))).mean(2)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        return self.head(self.one(first)) * self.twin(self.one(second))


class OneTensorTwice(nn.Module):
    """A normalisation whose scale is its shift, and a map of a whole sequence and of its mean."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.map = nn.LayerNorm(4), nn.Linear(4, 4)
        self.norm.bias = self.norm.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.map(self.norm(x)).sum(1) + torch.sin(self.map(x.mean(1)))


@pytest.fixture(params=[1 << 22, 40], ids=["gradients kept", "gradients computed again"])
def _keep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "KEEP", request.param)
    monkeypatch.setattr(terms, "KEEP", request.param)


def targets(count: int) -> Tensor:
    return torch.randn(count, dtype=torch.float64)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.integers(1, 9))
def test_a_cell_in_a_loop(batch: int, steps: int, width: int, hidden: int) -> None:
    torch.manual_seed(batch + 10 * steps)
    assert_exact(Cell(width, hidden).double(), torch.randn(batch, steps, width, dtype=torch.float64), targets(batch))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(2, 7), st.integers(1, 5), st.sampled_from([None, 0, 1]),
       st.sampled_from(["once", "twice", "other padding"]))  # fmt: skip
def test_a_table_tied_to_the_last_layer(
    batch: int, length: int, tokens: int, width: int, padding: int | None, again: str
) -> None:
    torch.manual_seed(batch + 10 * length)
    model = Language(tokens, width, padding, again).double()
    assert_exact(model, torch.randint(tokens, (batch, length)), targets(batch))


@pytest.mark.quick("gradients computed again")
@pytest.mark.usefixtures("_keep")
def test_twins_and_one_tensor_in_two_places() -> None:
    torch.manual_seed(0)
    assert_exact(Siamese().double(), torch.randn(5, 12, dtype=torch.float64), targets(5))
    assert_exact(OneTensorTwice().double(), torch.randn(5, 3, 4, dtype=torch.float64), targets(5))
    assert_exact(Language(5, 3, 2, "other padding").double(), torch.randint(5, (4, 6)), targets(4))
    assert_exact(Cell(3, 8).double(), torch.randn(5, 4, 3, dtype=torch.float64), targets(5))


def test_a_frozen_table_leaves_the_rest() -> None:
    torch.manual_seed(0)
    model = Language(5, 3, None, "twice").double()
    model.table.weight.requires_grad_(False)
    assert_exact(model, torch.randint(5, (4, 6)), targets(4))


def test_a_weight_that_is_also_used_by_itself_falls_back_with_its_reason() -> None:
    class Transposed(Language):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.body(self.table(x))) @ self.table.weight.T

    torch.manual_seed(0)
    gradients = PerRecordGradients(Transposed(5, 3, None, "once").double(), squared_error)
    x, y = torch.randint(5, (4, 6)), targets(4)
    found = gradients.clipped_sum(x, y, clip_norm=1.0)
    assert gradients.method == "vmap"
    assert "'table.weight' is used outside of its layer" in gradients.reason
    assert found.norms.min() > 0


def test_uses_that_cancel_never_make_a_norm_too_small() -> None:
    """Gradients of two places that are nearly opposite: the sum is small beside what it is computed from."""
    torch.manual_seed(0)
    for scale in (1e2, 1e4):
        a, g = torch.randn(64, 1, 8).expand(64, 9, 8) * scale, torch.randn(64, 9, 5)
        # Positions with one input: the gradient is (Σ g) aᵀ, which is nearly zero.
        g[:, 0] -= g.sum(1) * (1 - 1e-6)
        exact = torch.bmm(g.double().transpose(1, 2), a.double()).flatten(1).square().sum(1)
        found = gram(a.contiguous(), g)
        assert bool((found.double() >= exact).all())
    table = EmbeddingLayer("table", nn.Embedding(5, 8), {"weight": "w"})
    tokens, a, g = torch.randint(5, (64, 1)), torch.randn(64, 1, 8), torch.zeros(64, 1, 5)
    # The linear layer takes back what the lookup gives, but for a millionth.
    g.scatter_(2, tokens.unsqueeze(2), -1.0)
    e = a * (1 + 1e-6)
    found = TiedWeights(
        "w", LayerUse(table, tokens, e), LayerUse(LinearLayer("head", nn.Linear(8, 5), {"weight": "w"}), a, g)
    )
    exact = (e.double() - a.double()).flatten(1).square().sum(1)
    assert bool((found.squares["w"].double() >= exact).all())
