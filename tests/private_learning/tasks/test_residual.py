"""Residual networks on images, and several labels of one image."""

from __future__ import annotations

import math

import numpy as np
import torch

from private_learning.records import Examples
from private_learning.tasks import load
from private_learning.tasks.residual import ImageLabels, ResidualNetwork
from tests.private_learning.tasks.image_tasks import (
    IMAGES,
    parameters_of,
)


def test_a_label_that_is_not_known_moves_nothing() -> None:
    task = load("multi-label-images", parameters_of("multi-label-images"))
    labels = np.array([[1.0, np.nan, 0.0], [-1, 0, 1]])
    targets = task.dataset(Examples.of(np.zeros((2, 9, 10)), labels)).targets
    np.testing.assert_array_equal(targets.numpy(), [[1, np.nan, 0], [np.nan, 0, 1]])
    outputs = torch.tensor([[0.3, 9.0, -1.0], [5.0, 0.2, 0.1]], dtype=torch.float64, requires_grad=True)
    losses = task.loss(outputs, targets)
    expected = [
        math.log1p(math.exp(-0.3)) + math.log1p(math.exp(-1)),
        math.log1p(math.exp(0.2)) + math.log1p(math.exp(-0.1)),
    ]
    np.testing.assert_allclose(losses.detach().numpy(), expected)
    losses.sum().backward()
    assert outputs.grad is not None
    assert outputs.grad[0, 1] == outputs.grad[1, 0] == 0


def test_every_stage_doubles_the_filters_and_has_a_shortcut_where_they_change() -> None:
    task = load("resnet", IMAGES | {"classes": 3, "stages": 2, "blocks": 2, "first-stride": 2, "channels": 3})
    assert isinstance(task, ResidualNetwork)
    assert task.parameters.strides == [2, 1, 1, 2, 1]
    assert dict(task.layout.normalised) == {
        "blocks.0": (4, 3, 3, 3),
        "blocks.2.one": (4, 4, 3, 3),
        "blocks.2.two": (4, 4, 3, 3),
        "blocks.3.one": (4, 4, 3, 3),
        "blocks.3.two": (4, 4, 3, 3),
        "blocks.4.one": (8, 4, 3, 3),
        "blocks.4.two": (8, 8, 3, 3),
        "blocks.4.beside": (8, 4, 1, 1),
        "blocks.5.one": (8, 8, 3, 3),
        "blocks.5.two": (8, 8, 3, 3),
    }
    assert task.layout.last == (3, 8)
    assert task.layout.at_zero == frozenset()


def test_the_layout_names_the_weights_of_the_model() -> None:
    for name, more in (("resnet", {"classes": 2}), ("multi-label-images", {"labels": "a|b|c"})):
        task = load(name, IMAGES | more | {"stages": 2, "zero-last-norm": True})
        assert isinstance(task, ResidualNetwork | ImageLabels)
        shapes = {key: tuple(p.shape) for key, p in task.model().named_parameters() if key.endswith("conv.weight")}
        assert shapes == {f"{key}.conv.weight": shape for key, shape in task.layout.normalised.items()}
        assert task.layout.at_zero == {key for key in task.layout.normalised if key.endswith(".two")}
