"""Embedding bags of every mode, with padding, weights for tokens, repeated tokens; and a table in two modules."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.embedding_bag import BagSums
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.layerwise import Layerwise
from tests.private_learning.gradients.references import assert_exact, squared_error


class Bagged(nn.Module):
    """tokens, and a hidden layer; `weighed`: weights of the tokens that are parameters' functions themselves."""

    def __init__(self, mode: str, padding: int | None, *, weighed: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(6, 3, mode=mode, padding_idx=padding), nn.Linear(3, 2)
        self.shares = nn.Embedding(6, 1) if weighed else None
        self.single = nn.Embedding(6, 3) if tied else None
        if self.single is not None:
            self.single.weight = self.bag.weight

    def forward(self, x: Tensor) -> Tensor:
        weights = None if self.shares is None else torch.sigmoid(self.shares(x)).squeeze(2)
        found = self.bag(x, per_sample_weights=weights)
        return self.head(torch.tanh(found if self.single is None else found * self.single(x[:, 0])))


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(6, (batch, length), generator=torch.Generator().manual_seed(batch + 10 * length))


def targets(count: int) -> Tensor:
    return torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.sampled_from(["sum", "mean", "max", "weighed"]),
       st.sampled_from([None, 0, 5]), st.booleans())  # fmt: skip
def test_bags_of_every_mode(batch: int, length: int, mode: str, padding: int | None, tied: bool) -> None:
    torch.manual_seed(batch + 10 * length)
    weighed = mode == "weighed"
    model = Bagged("sum" if weighed else mode, padding, weighed=weighed, tied=tied).double()
    assert_exact(model, tokens(batch, length), targets(batch))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_of_padding_alone_is_zero(mode: str) -> None:
    torch.manual_seed(0)
    x = tokens(4, 5)
    x[1] = 0
    assert_exact(Bagged(mode, 0).double(), x, targets(4))


def test_bags_by_offsets_fall_back_with_a_reason() -> None:
    class Flat(Bagged):
        def forward(self, x: Tensor) -> Tensor:
            starts = torch.arange(0, x.numel(), x.shape[1])
            return self.head(self.bag(x.flatten(), starts))

    torch.manual_seed(0)
    model = Flat("sum", None).double()
    with pytest.raises(NotLayerwise, match="one row of tokens for each record"):
        Layerwise(model, squared_error).run(tokens(4, 5), targets(4))
    gradients = PerRecordGradients(model, squared_error)
    assert gradients.norms(tokens(4, 5), targets(4)).min() > 0
    assert "one row of tokens for each record" in gradients.reason


@pytest.mark.parametrize("padding", [None, 0])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_the_closed_forms_of_sums_are_autograd_s_for_single_records(mode: str, padding: int | None) -> None:
    torch.manual_seed(1)
    module = nn.EmbeddingBag(6, 3, mode=mode, padding_idx=padding).double()
    layer = BagSums("bag", module, {"weight": "model.weight"})
    x, g = tokens(5, 9), torch.randn(5, 3, dtype=torch.float64)
    rows = [torch.autograd.grad((module(x[i : i + 1]) * g[i]).sum(), module.weight)[0] for i in range(5)]
    true, factors = torch.stack(rows), torch.linspace(-1, 2, 5, dtype=torch.float64)
    squares, cache = layer.squares(x, g)
    torch.testing.assert_close(layer.forward(x), module(x).detach())
    torch.testing.assert_close(layer.per_record(x, g)["weight"], true)
    torch.testing.assert_close(squares["weight"], true.flatten(1).square().sum(1))
    torch.testing.assert_close(
        layer.weighted_sum(x, g, {"weight": factors}, cache)["weight"], torch.einsum("i,ijk->jk", factors, true)
    )
    centre = torch.randn_like(true[0])
    torch.testing.assert_close(layer.inner(x, g, {"weight": centre}, cache)["weight"], (true * centre).sum((1, 2)))
