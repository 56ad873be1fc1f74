"""What a model says of a record does not depend on who else is asked about, to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.training.per_record_results import each_alone

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (
        lambda: nn.Sequential(nn.Linear(37, 129), nn.ReLU(), nn.Linear(129, 65), nn.Tanh(), nn.Linear(65, 2)),
        (37,),
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3)),
        (1, 8, 8),
    ),
    "recurrent": (lambda: Last(5, 9), (7, 5)),
}


class Last(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0][:, -1]


@pytest.mark.parametrize("name", MODELS)
def test_one_record_more_or_less_moves_no_other(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, inputs = make().eval(), torch.randn(400, *shape)
    inputs[50:60] = inputs[7]
    source = np.random.default_rng(0)
    with torch.no_grad():
        whole = each_alone(model, inputs, model)
        assert torch.allclose(whole, model(inputs), atol=1e-5)
        for count in (1, 2, 3, 63, 64, 65, 200, 399):
            some = torch.as_tensor(source.permutation(400)[:count])
            assert torch.equal(each_alone(model, inputs[some], model), whole[some])


def test_kernels_that_round_by_shape_do_no_harm() -> None:
    inputs = torch.randn(100, 3)

    by_shape = Said(lambda x: x + len(x) * 1e-3)
    assert not torch.equal(by_shape(inputs)[:50], by_shape(inputs[:50]))
    assert torch.equal(each_alone(by_shape, inputs, by_shape)[:50], each_alone(by_shape, inputs[:50], by_shape))


class Said(nn.Module):
    """A model that is one function."""

    def __init__(self, said: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._said = said

    def forward(self, x: Tensor) -> Tensor:
        return self._said(x)


WHOLE_PASS: dict[str, Callable[[Tensor], Tensor]] = {
    "a branch": lambda x: -x if bool((x > 100).any()) else x,
    "a number": lambda x: x + x.max().item(),
    "NumPy": lambda x: x + float(x.numpy().max()),
    "a sum of all": lambda x: x / (1 if float(x.sum()) > 1000 else 2),
    "a shape": lambda x: x + len((x > 100).nonzero()),
}


@pytest.mark.parametrize("name", WHOLE_PASS)
def test_one_record_opens_no_branch_for_others(name: str) -> None:
    inputs = torch.randn(70, 3, generator=torch.Generator().manual_seed(1))
    more = torch.cat([inputs, torch.full((1, 3), 1000.0)])
    model = Said(WHOLE_PASS[name])
    assert not torch.equal(model(more)[:70], model(inputs))
    assert torch.equal(each_alone(model, more, model)[:70], each_alone(model, inputs, model))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_a_program_s_branch_is_seen_too() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if bool((x > 100).any()):
                return -x
            return x

    inputs = torch.randn(70, 3, generator=torch.Generator().manual_seed(1))
    more = torch.cat([inputs, torch.full((1, 3), 1000.0)])
    model = torch.jit.script(Branching())
    assert torch.equal(each_alone(model, more, model)[:70], each_alone(model, inputs, model))


def test_what_comes_after_the_model_opens_no_branch_either() -> None:
    inputs = torch.randn(70, 3, generator=torch.Generator().manual_seed(1))
    more = torch.cat([inputs, torch.full((1, 3), 1000.0)])
    model = nn.Identity()

    def said(x: Tensor) -> Tensor:
        found = model(x)
        return -found if bool((found > 100).any()) else found

    assert torch.equal(each_alone(said, more, model)[:70], each_alone(said, inputs, model))
