"""Networks of the tasks on images and signals: gradients of single records, blocks, and no mixing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from private_learning.gradients.layerwise import Layerwise
from private_learning.tasks import load
from private_learning.tasks.convolutions import ConvolutionLayout
from private_learning.tasks.networks import Averaged, ConvNorm
from private_learning.training.patients import LossOfPatients, RowsOfPatients
from tests.private_learning.tasks.image_tasks import (
    IMAGES,
    NAMES,
    SIGNALS,
    compare,
    parameters_of,
    randomised,
    tensors,
)


@pytest.mark.quick("signal-cnn")
@pytest.mark.parametrize("name", NAMES)
def test_closed_forms_are_one_backward_per_record(name: str) -> None:
    task = load(name, parameters_of(name))
    x, y = tensors(task, 5)
    compare(randomised(task.model(), 3).eval(), task.loss, x, y)


@pytest.mark.quick("signal-cnn")
@pytest.mark.parametrize("name", NAMES)
def test_several_rows_of_a_record_keep_the_closed_forms(name: str) -> None:
    """Three rows each, as of several views or images of a patient: the mean of their gradients, clipped once."""
    task = load(name, parameters_of(name))
    x, y = (values.unflatten(0, (2, 3)) for values in tensors(task, 6))
    model, loss = RowsOfPatients(randomised(task.model(), 4)), LossOfPatients(task.loss)
    assert Layerwise(model, loss).run(x, y).batch == 2
    compare(model, loss, x, y)


def test_no_layer_mixes_records() -> None:
    for name in NAMES:
        task = load(name, parameters_of(name))
        model = task.model()
        inputs = task.example_inputs(4, np.random.default_rng(0))
        alone = torch.cat([model(inputs[i : i + 1]) for i in range(4)])
        torch.testing.assert_close(model(inputs), alone)


def test_a_block_that_begins_at_zero_passes_on_what_came_in() -> None:
    task = load("resnet", IMAGES | {"classes": 3, "stages": 1, "zero-last-norm": True})
    model: Any = task.model()
    x = torch.rand(2, 4, 9, 10)
    torch.testing.assert_close(model.blocks[2](x), x)
    plain: Any = load("resnet", IMAGES | {"classes": 3, "stages": 1}).model()
    assert (plain.blocks[2](x) - x).abs().max() > 0.1


def test_strides_halve_what_is_left() -> None:
    task = load("resnet", IMAGES | {"classes": 3, "stages": 3, "blocks": 2, "first-stride": 2})
    model: Any = task.model()
    assert model.blocks(torch.rand(1, 1, 9, 10)).shape == (1, 16, 2, 2)
    signal: Any = load("signal-cnn", SIGNALS | {"layers": 4}).model()
    assert signal.blocks(torch.rand(1, 2, 40)).shape == (1, 16, 3)


def test_a_normalised_convolution_is_padded_and_begins_at_zero_where_the_layout_says_so() -> None:
    layout = ConvolutionLayout({"a": (4, 2, 3), "b": (4, 2, 5, 5)}, (3, 4), frozenset({"b"}))
    signal, image = ConvNorm(layout, "a", 2, stride=2), ConvNorm(layout, "b", 2)
    assert signal(torch.randn(1, 2, 9)).shape == (1, 4, 5)
    assert image(torch.randn(1, 2, 6, 7)).shape == (1, 4, 6, 7)
    assert signal.norm.weight.tolist() == [1.0] * 4
    assert image.norm.weight.tolist() == [0.0] * 4
    assert signal.conv.bias is None


def test_the_last_layer_sees_the_mean_over_all_positions() -> None:
    model = Averaged([torch.nn.Identity()], ConvolutionLayout({}, (3, 4)))
    inputs = torch.randn(2, 4, 5, 6)
    torch.testing.assert_close(model(inputs), inputs.mean((2, 3)) @ model.last.weight.T + model.last.bias)
