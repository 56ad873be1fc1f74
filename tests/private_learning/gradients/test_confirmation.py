"""The trial of a model and a loss before round 1: what it finds, and what it says of what it cannot try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients.confirmation import Confirmed, confirmed
from private_learning.gradients.errors import NotLayerwise, UnsupportedLayer
from private_learning.gradients.generated import ExampleMakers, Shapes
from private_learning.gradients.layers import cross_entropy
from private_learning.gradients.layerwise import Layerwise
from private_learning.gradients.per_record import PerRecord

CPU = torch.device("cpu")
ROWS = Shapes(torch.Size([4]), torch.float32, torch.Size([]), torch.int64)
NONE = ExampleMakers()


def tried(
    model: nn.Module,
    loss: Any = cross_entropy,
    examples: ExampleMakers = NONE,
    shapes: Shapes = ROWS,
    views: Any = None,
) -> Confirmed:
    torch.manual_seed(1)
    return confirmed(model, loss, shapes, examples, views, CPU)


def test_a_plain_model_is_tried_on_several_kinds_and_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    trial = tried(model)
    assert trial.remark is None
    assert len(trial.inputs) > 1
    assert {tuple(x.shape) for x in trial.inputs} == {(8, 4)}
    assert trial.targets
    assert all(int(y.min()) >= 0 and int(y.max()) <= 1 for y in trial.targets)
    # Inputs and output gradients of both layers: 4 + 3 + 3 + 2 numbers for each record.
    assert trial.verify(Layerwise(model, cross_entropy)) == 12
    trial.run(PerRecord(model, cross_entropy, vectorised=True))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Mixing(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input - input.mean(0))


class Following(nn.Module):
    """Python numbers of values, which keep records apart and yet decide the way of all."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        output = self.layer(x)
        return output if float(output.sum()) < 1e30 else output * 1.0


def test_records_that_meet_in_the_model_are_refused() -> None:
    with pytest.raises(UnsupportedLayer):
        tried(Mixing(4, 2))


def test_a_model_that_reads_values_is_not_layerwise() -> None:
    model = Following()
    with pytest.raises(NotLayerwise, match="Python numbers"):
        tried(model).verify(Layerwise(model, cross_entropy))


def test_a_model_that_takes_no_generated_record_is_refused_with_the_hook_to_write() -> None:
    with pytest.raises(UnsupportedLayer, match="example_inputs") as refused:
        tried(nn.Linear(5, 2))
    assert "(4,)" in str(refused.value)


class OnlyPositive(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        if input.shape[1:] == (4,) and not torch.equal(input, input.round()):
            raise ValueError("whole numbers only")
        return super().forward(input)


def test_the_task_s_own_inputs_are_used_where_they_fit() -> None:
    def whole(count: int, draw: np.random.Generator) -> Tensor:
        return torch.as_tensor(draw.integers(0, 50, (count, 4)))

    trial = tried(OnlyPositive(4, 2), examples=ExampleMakers(inputs=whole))
    assert all(torch.equal(x, x.round()) and x.dtype == torch.float32 for x in trial.inputs)

    def broken(count: int, draw: np.random.Generator) -> Tensor:
        raise KeyError("no such thing")

    with pytest.raises(UnsupportedLayer, match="could not be made: KeyError"):
        tried(nn.Linear(4, 2), examples=ExampleMakers(inputs=broken))


class Infinite(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + torch.inf


def test_outputs_that_are_not_finite_are_remarked_and_no_loss_is_tried() -> None:
    trial = tried(Infinite(4, 2))
    assert trial.targets == []
    assert trial.remark == "the model's outputs of generated records are not finite"


def test_a_built_in_loss_that_does_not_fit_says_so() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        tried(nn.Linear(4, 2), shapes=Shapes(torch.Size([4]), torch.float32, torch.Size([3, 3]), torch.int64))


def test_a_loss_that_takes_no_generated_target_is_remarked() -> None:
    def picky(outputs: Tensor, targets: Tensor) -> Tensor:
        if bool((targets < 1000).any()):
            raise ValueError("codes begin at 1000")
        return outputs.sum(1)

    remark = tried(nn.Linear(4, 2), picky).remark
    assert remark is not None
    assert "example_targets" in remark


class Twice:
    """Every record in two views: the model sees half as many numbers."""

    def trial_views(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :2], y


def test_views_decide_what_the_model_is_given() -> None:
    trial = tried(nn.Linear(2, 2), views=Twice())
    assert {tuple(x.shape) for x in trial.inputs} == {(8, 2)}
