"""Signals between layers are autograd's, the model is left as it was, and what is not a layer's own is found out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients.capture import Capture
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.inspection import known_layers, trainable


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


X = torch.linspace(-1, 1, 20, dtype=torch.float64).view(5, 4)
CPU = torch.device("cpu")


def test_inputs_and_output_gradients_are_those_of_autograd() -> None:
    made = model()
    with Capture(known_layers(made), CPU) as capture:
        capture.gradients(made(X).square().sum(), trainable(made))
    hidden = torch.tanh(made[0](X))
    outputs = made[2](hidden)
    g_hidden, g_outputs = torch.autograd.grad(outputs.square().sum(), [hidden, outputs])
    first, second = capture.uses
    for use, inputs, grads in ((first, X, g_hidden * (1 - hidden.square())), (second, hidden, g_outputs)):
        found = use.checked(5)
        assert found is not None
        torch.testing.assert_close(found[0], inputs)
        torch.testing.assert_close(found[1], grads)
        assert use.numbers == inputs.numel() + grads.numel()


def test_the_model_is_left_as_it_was_whatever_happens() -> None:
    made = model()
    with Capture(known_layers(made), CPU), pytest.raises(RuntimeError, match="shapes"):
        made(X.T)
    assert all("forward" not in vars(module) for module in made)
    assert made(X).requires_grad


def test_a_call_that_the_loss_does_not_depend_on_has_no_gradient() -> None:
    made = model()
    with Capture(known_layers(made), CPU) as capture:
        made(2 * X)
        capture.gradients(made(X).sum(), trainable(made))
    assert [use.checked(5) is None for use in capture.uses] == [True, True, False, False]
    assert capture.uses[0].numbers == capture.uses[0].input.numel()


def test_a_parameter_outside_of_its_layer_is_named() -> None:
    made = model()
    with Capture(known_layers(made), CPU) as capture, pytest.raises(NotLayerwise, match=r"'2\.bias' is used outside"):
        capture.gradients((made(X) * made[2].bias).sum(), trainable(made))


def test_an_input_changed_after_the_call_is_found_out() -> None:
    layer = nn.Linear(4, 4).double()
    inputs = X.clone()
    with Capture(known_layers(layer), CPU) as capture:
        outputs = layer(inputs)
        inputs += 1
        capture.gradients(outputs.sum(), trainable(layer))
    with pytest.raises(NotLayerwise, match="changed in place"):
        capture.uses[0].checked(5)


def test_records_on_another_axis_are_found_out() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.T)

    made = Turned()
    with Capture(known_layers(made), CPU) as capture:
        capture.gradients(made(X).sum(), trainable(made))
    with pytest.raises(NotLayerwise, match="first axis"):
        capture.uses[0].checked(5)
