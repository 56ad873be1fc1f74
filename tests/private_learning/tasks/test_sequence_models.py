"""Models of sequences: a patient's own events alone decide, and gradients of single patients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from private_learning.gradients import PerRecordGradients
from private_learning.tasks import load as load_task
from private_learning.tasks.sequence_models import Recurrent, TokenModel, Transformer
from tests.factories.made_up import made_up
from tests.private_learning.tasks.test_sequences import KINDS, PLAIN, histories


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_says_of_a_patient_depends_on_its_own_events_alone(kind: str) -> None:
    """Not on how much room is left behind them, and not on who is asked about beside."""
    short, long = (load_task("sequence", PLAIN | {"model": kind, "length": n}) for n in (6, 9))
    torch.manual_seed(1)
    model, roomier = short.model().eval(), long.model().eval()
    common = {name: value for name, value in model.state_dict().items() if not name.startswith("places")}
    roomier.load_state_dict(common, strict=False)
    if kind == "transformer":
        with torch.no_grad():
            roomier.places.weight[:6] = model.places.weight
    x = short.inputs(histories())
    torch.testing.assert_close(roomier(long.inputs(histories())), model(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model(x[1:2]), model(x)[1:2], rtol=1e-5, atol=1e-6)
    # Nobody's events are nobody's score but the head's own.
    torch.testing.assert_close(model(x)[2], model.head.bias)


@pytest.mark.quick("transformer")
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_one_backward_a_patient(kind: str) -> None:
    how = {"model": kind, "hidden": 8, "embedding": 8, "layers": 2, "length": 12, "column.age": "18..90"}
    task = load_task("sequence", PLAIN | how)
    torch.manual_seed(2)
    data = task.dataset(made_up(task, 12))
    assert (data.inputs[:, 1:] == 0).all(1).any() or (data.inputs[:, -1] == 0).any()
    model = task.model().eval().double()
    gradients = PerRecordGradients(model, task.loss)
    found = gradients.clipped_sum(data.inputs.double(), data.targets, clip_norm=0.1)
    assert gradients.method == "layerwise", gradients.reason
    norms, total = [], [torch.zeros_like(p) for p in model.parameters()]
    for x, y in zip(data.inputs.double(), data.targets, strict=True):
        each = torch.autograd.grad(task.loss(model(x[None]), y[None]).sum(), [*model.parameters()])
        norms.append(torch.sqrt(sum((g.square().sum() for g in each), torch.zeros((), dtype=torch.float64))))
        total = [t + g * min(1.0, 0.1 * (1 - 2.0**-40) / float(norms[-1])) for t, g in zip(total, each, strict=True)]
    torch.testing.assert_close(found.norms, torch.stack(norms), rtol=1e-9, atol=1e-12)
    for value, expected in zip(found.gradients.values(), total, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-11)


def test_no_layer_of_a_model_mixes_patients() -> None:
    for kind in KINDS:
        model = load_task("sequence", PLAIN | {"model": kind}).model()
        assert not any(isinstance(module, nn.modules.batchnorm._NormBase) for module in model.modules())


@pytest.mark.parametrize("model", [Recurrent("lstm", 7, 2, 4, 5, 1, 3), Transformer(7, 2, 6, 4, 2, 8, 1, 3)])
def test_a_patient_without_events_has_a_state_of_zeros(model: TokenModel) -> None:
    model.eval()
    static = torch.randn(1, 2)
    inputs = torch.cat([static, torch.zeros(1, 6)], 1)
    expected = model.head.bias + static @ model.head.weight[:, :2].T
    torch.testing.assert_close(model(inputs)[0], expected[0])


def test_the_recurrent_state_is_the_one_after_the_newest_event() -> None:
    torch.manual_seed(4)
    model = Recurrent("gru", 7, 0, 4, 5, 2, 3)
    tokens = torch.tensor([[3, 1, 0, 0], [2, 2, 5, 6]])
    states = model.state(model.embed(tokens), tokens != 0)
    for row, length in enumerate((2, 4)):
        _, last = model.units(model.embed(tokens[row : row + 1, :length]))
        torch.testing.assert_close(states[row], last[-1, 0], rtol=1e-5, atol=1e-6)
