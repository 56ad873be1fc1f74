"""Models whose way follows from a record's values are never computed for several records together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients, Slots
from private_learning.gradients.layers import cross_entropy
from private_learning.gradients.reads import follows_values
from tests.private_learning.gradients.references import one_by_one

# Beyond every generated record: what happens there shows in no comparison.
FAR = 5000.0
READINGS: dict[str, Callable[[Tensor], bool]] = {
    "a boolean": lambda x: bool((x > FAR).any()),
    "a condition": lambda x: bool(x.max() > FAR),
    "a number": lambda x: x.max().item() > FAR,
    "a list": lambda x: max(x.flatten().tolist()) > FAR,
    "an array": lambda x: x.detach().numpy().max() > FAR,
    "a mask": lambda x: len(x[x > FAR]) > 0,
    "places": lambda x: len((x > FAR).nonzero()) > 0,
    "equality": lambda x: not torch.equal(x.clamp(max=FAR), x),
    "different values": lambda x: len(torch.unique(x.clamp(min=FAR))) > 1,
}


class Branching(nn.Module):
    """Twice as large for all where one record is far away."""

    def __init__(self, reads: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.layer, self.reads = nn.Linear(3, 1), reads

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * (2.0 if self.reads(x) else 1.0)


class Scaled(nn.Module):
    """Numbers of parameters and buffers are everybody's."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        places = torch.tensor([2, 0, 1])
        return self.layer(x[:, places]) * self.scale.item() / float(self.layer.weight.detach().norm())


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(-1) - targets).square()


@pytest.mark.quick(
    "a boolean-None",
    "a condition-slots1",
    "a list-None",
    "a mask-slots1",
    "a number-None",
    "an array-None",
    "different values-slots1",
    "equality-None",
    "places-None",
)
@pytest.mark.parametrize("slots", [None, Slots(8)])
@pytest.mark.parametrize("name", READINGS)
def test_one_record_opens_a_branch_for_itself_alone(name: str, slots: Slots | None) -> None:
    torch.manual_seed(2)
    model = Branching(READINGS[name])
    x, t = torch.randn(6, 3) / 10, torch.ones(6)
    x[-1] = 2 * FAR
    gradients = PerRecordGradients(model, loss)
    others = gradients.norms(x[:-1], t[:-1], slots=slots)
    assert gradients.method == "one by one"
    assert "one record could decide the way of all" in gradients.reason
    torch.testing.assert_close(gradients.norms(x, t, slots=slots)[:-1], others, rtol=1e-6, atol=0.0)


def test_numbers_of_parameters_and_buffers_may_be_read() -> None:
    torch.manual_seed(3)
    model, x, t = Scaled(), torch.randn(5, 3), torch.ones(5)
    assert not follows_values(model, x)
    gradients = PerRecordGradients(model, loss)
    norms = gradients.norms(x, t)
    assert gradients.method == "layerwise"
    each = torch.cat([value.flatten(1) for value in one_by_one(model, loss, x, t).values()], 1)
    torch.testing.assert_close(norms, each.norm(dim=1).double(), rtol=1e-5, atol=0.0)


class OfAll(nn.Module):
    """What PyTorch's gradient of it computes another way for all records where one record has a zero."""

    def __init__(self, name: str, scale: float = 1e30) -> None:
        super().__init__()
        self.name, self.scale, self.body, self.head = name, scale, nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.body(x))
        if self.name == "prod":
            hidden = hidden.prod(1, keepdim=True).expand(-1, 4)
        elif self.name == "cumprod":
            hidden = hidden.cumprod(1)
        else:
            hidden = torch.linalg.det(hidden.view(-1, 2, 2)).unsqueeze(1).expand(-1, 4)
        return self.head(hidden * self.scale)


def places(seed: int) -> Slots:
    draw = np.random.default_rng(seed)
    return Slots(24, lambda count: draw.integers(1 << 63, size=count, dtype=np.uint64))


@pytest.mark.parametrize("name", ["prod", "cumprod", "det"])
def test_one_record_with_a_zero_changes_no_gradient_of_the_others(name: str) -> None:
    """The usual gradient of a product underflows for these records, and the one beside a zero does not."""
    torch.manual_seed(1)
    model = OfAll(name)
    gradients = PerRecordGradients(model, cross_entropy)
    with torch.no_grad():
        model.body.weight.copy_(torch.eye(4))
        model.body.bias.zero_()
    x, y = torch.tensor([[1e-25, 1e-25, 1e15, 1.0]]).repeat(20, 1), torch.zeros(20, dtype=torch.int64)
    x[-1] = 0
    whole = gradients.clipped_sum(x, y, clip_norm=1.0, slots=places(3))
    rest = gradients.clipped_sum(x[:-1], y[:-1], clip_norm=1.0, slots=places(3))
    assert gradients.method == "vmap"
    assert torch.equal(whole.norms[:-1], rest.norms)
    moved = sum(float((whole.gradients[key] - rest.gradients[key]).square().sum()) for key in whole.gradients) ** 0.5
    assert moved <= 1 + whole.rounding


@pytest.mark.parametrize("name", ["prod", "cumprod", "det"])
def test_the_reason_is_that_values_of_all_records_are_read(name: str) -> None:
    gradients = PerRecordGradients(OfAll(name, 1.0), cross_entropy)
    gradients.clipped_sum(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64), clip_norm=1.0)
    assert gradients.method == "vmap"
    assert "values of all records" in gradients.reason


class Tokens(nn.Module):
    """A table that is looked up, or summed in bags, with a token that is padding."""

    def __init__(self, bags: bool) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(9, 6, mode="sum", padding_idx=0) if bags else nn.Embedding(9, 6, padding_idx=0)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = self.table(x)
        return self.head(torch.tanh(found if found.dim() == 2 else found.square().sum(1)))


@pytest.mark.parametrize("centre", [False, True], ids=["norms", "distances"])
@pytest.mark.parametrize("bags", [False, True], ids=["lookups", "bags"])
def test_the_tokens_of_one_record_move_no_norm_of_the_others(bags: bool, centre: bool) -> None:
    torch.manual_seed(2)
    model = Tokens(bags)
    gradients = PerRecordGradients(model, cross_entropy, method="layerwise")
    middle = {key: 0.1 * torch.ones_like(value) for key, value in model.named_parameters()} if centre else None
    draw = torch.Generator().manual_seed(4)
    for seed in range(20):
        x, y = torch.randint(0, 9, (20, 5), generator=draw), torch.randint(0, 3, (20,), generator=draw)
        if seed % 2:
            # Nothing but padding, and one token alone.
            x[-1] = seed // 2 % 2
        whole = gradients.clipped_sum(x, y, clip_norm=1.0, slots=places(seed), centre=middle)
        rest = gradients.clipped_sum(x[:-1], y[:-1], clip_norm=1.0, slots=places(seed), centre=middle)
        assert torch.equal(whole.norms[:-1], rest.norms)
