"""Models whose way follows from a record's values are never computed for several records together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from client_sdk.gradients import PerRecordGradients, Slots
from client_sdk.gradients.reads import follows_values
from tests.client_sdk.gradients.references import one_by_one

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
