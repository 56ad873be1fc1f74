"""Segmentation: masks by their values, and metrics of sets of pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from private_learning.records import Examples, LazyExamples
from private_learning.tasks import dataset_of, load
from private_learning.tasks.segmentation import MAX_CLASSES_SHOWN, Segmentation
from tests.factories.readers import Images
from tests.private_learning.tasks.image_tasks import (
    IMAGES,
    MASKS,
    compare,
    random_masks,
    randomised,
)


# The last convolution of a U-Net, of 1 × 1, and its repeated pixels see every shape.
@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    height=st.integers(4, 11),
    width=st.integers(4, 11),
    depth=st.integers(1, 3),
    channels=st.integers(1, 3),
    classes=st.integers(2, 4),
    seed=st.integers(0, 99),
)
def test_masks_of_any_shape_have_the_size_of_their_images(
    height: int, width: int, depth: int, channels: int, classes: int, seed: int
) -> None:
    shape = {"height": height, "width": width, "channels": channels, "classes": classes, "depth": depth}
    task = load("segmentation", shape | {"filters": 2, "groups": 1, "dice": 1.0})
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, channels, height, width, generator=generator, dtype=torch.float64)
    y = torch.randint(-1, classes, (3, height, width), generator=generator)
    y[:, 0, 0] = 0
    model = randomised(task.model(), seed)
    assert model(x).shape == (3, classes, height, width)
    compare(model, task.loss, x, y)


def test_masks_are_read_by_their_values() -> None:
    task = load("segmentation", MASKS)
    masks = random_masks(np.random.default_rng(1), 4, 9, 10)
    data = task.dataset(Examples.of(np.zeros((4, 9, 10)), masks))
    expected = np.select([masks == 0, masks == 7, masks == 255], [0, 1, 2], -1)
    np.testing.assert_array_equal(data.targets.numpy(), expected)
    assert task.target_counts(data.targets) == {"0": 4, "7": 4, "255": 4, "not labelled": 4}
    only = np.full((2, 1, 9, 10), 7)
    assert task.target_counts(task.targets(Examples.of(np.zeros((2, 9, 10)), only)))["0"] == 0  # type: ignore[attr-defined]


def test_masks_of_rows_read_on_demand_are_the_same() -> None:
    task, draw = load("segmentation", MASKS), np.random.default_rng(2)
    inputs, masks = draw.integers(0, 255, (5, 9, 10)), random_masks(draw, 5, 9, 10)
    whole = task.dataset(Examples.of(inputs, masks))
    lazy = dataset_of(task, LazyExamples.of(Images(inputs), masks))
    assert torch.equal(lazy.targets, whole.targets)
    assert torch.equal(lazy.inputs[[3, 1]], whole.inputs[[3, 1]])


def test_dice_and_overlap_are_those_of_sets_of_pixels() -> None:
    task = load("segmentation", MASKS | {"height": 4, "width": 4})
    draw = np.random.default_rng(5)
    truth, scores = draw.integers(-1, 2, (3, 4, 4)), draw.normal(size=(3, 3, 4, 4))
    scores[:, 2] = -9  # Class 2 is neither there nor predicted.
    found = task.metrics(torch.tensor(scores), torch.tensor(truth))
    known, said = truth >= 0, scores.argmax(1)
    dice, overlap = [], []
    for k in range(2):
        one, other = (
            {*zip(*np.nonzero(known & (truth == k)), strict=True)},
            {*zip(*np.nonzero(known & (said == k)), strict=True)},
        )
        dice.append(2 * len(one & other) / (len(one) + len(other)))
        overlap.append(len(one & other) / len(one | other))
    expected = {"dice": np.mean(dice), "iou": np.mean(overlap), "pixel_accuracy": (truth == said)[known].mean()}
    expected |= {f"dice_{k}": dice[k] for k in range(2)} | {f"iou_{k}": overlap[k] for k in range(2)}
    assert found == pytest.approx(expected)


def test_masks_of_probabilities_have_the_values_of_the_study() -> None:
    task = load("segmentation", MASKS)
    assert isinstance(task, Segmentation)
    probabilities = np.zeros((1, 3, 1, 3))
    probabilities[0, [0, 1, 2], 0, [0, 1, 2]] = 1.0
    assert task.masks(probabilities).tolist() == [[[0, 7, 255]]]
    outputs = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(task.predictions(outputs).sum(1), torch.ones(2, 4, 4))


def test_of_many_classes_the_means_alone_are_shown() -> None:
    classes = MAX_CLASSES_SHOWN + 1
    task = load("segmentation", IMAGES | {"classes": classes, "height": 4, "width": 4, "depth": 1})
    truth = torch.arange(16).remainder(classes).view(1, 4, 4)
    outputs = torch.nn.functional.one_hot(truth, classes).permute(0, 3, 1, 2).float()
    assert task.metrics(outputs, truth) == {"dice": 1.0, "iou": 1.0, "pixel_accuracy": 1.0}


def test_the_layout_has_the_levels_of_the_way_down_beside_those_of_the_way_up() -> None:
    task = load("segmentation", IMAGES | {"classes": 3, "depth": 2, "channels": 3})
    assert isinstance(task, Segmentation)
    layout = task.layout
    assert layout.normalised["down.0.0"] == (4, 3, 3, 3)
    assert layout.normalised["down.2.0"] == (16, 8, 3, 3)
    assert layout.normalised["up.1.0"] == (8, 24, 3, 3)
    assert layout.last == (3, 4, 1, 1)
    shapes = {key: tuple(p.shape) for key, p in task.model().named_parameters() if key.endswith("conv.weight")}
    assert shapes == {f"{key}.conv.weight": shape for key, shape in layout.normalised.items()}
