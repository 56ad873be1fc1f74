"""Residual networks, several labels of images, segmentation and signals: records, losses, metrics, gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.layerwise import Layerwise
from private_learning.gradients.pixels import PixelLoss
from private_learning.records import DataError, Examples, LazyExamples, Table
from private_learning.tasks import Task, TaskError, dataset_of, load
from private_learning.tasks.registry import EXAMPLES
from private_learning.training.patients import LossOfPatients, RowsOfPatients
from tests.factories.made_up import made_up
from tests.factories.readers import Images

IMAGES = {"height": 9, "width": 10, "filters": 4, "groups": 2}
MASKS = IMAGES | {"classes": 3, "depth": 1, "mask-values": "0|7|255", "unlabelled": 9}
SIGNALS = {"channels": 2, "length": 40, "classes": 3, "range": "-5..5|0..200", "filters": 4, "groups": 2}
NAMES = ("resnet", "multi-label-images", "segmentation", "signal-cnn")


def parameters_of(name: str) -> dict[str, Any]:
    own = {
        "resnet": IMAGES | {"classes": 3, "blocks": 2, "stages": 2},
        "multi-label-images": IMAGES | {"labels": "effusion|nodule|edema", "stages": 2},
        "segmentation": MASKS | {"dice": 0.7, "class-weights": "1|2|3"},
        "signal-cnn": SIGNALS,
    }
    return own[name]


def random_masks(draw: np.random.Generator, *shape: int) -> np.ndarray:
    masks = draw.choice([0, 7, 9, 255], shape)
    masks[:, 0, 0] = 7  # One pixel of each is labelled.
    return masks


def randomised(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """In float64, with weights of any size: also those that begin at 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.double().parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return model


def tensors(task: Task, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Made-up inputs in float64, and targets."""
    records = made_up(task, count)
    return task.inputs(records).double(), task.dataset(records).targets


def own_gradient(model: torch.nn.Module, loss: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """By one backward of one record alone."""
    model.zero_grad()
    loss(model(x[None]), y[None]).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def compare(model: torch.nn.Module, loss: Any, x: torch.Tensor, y: torch.Tensor, clip: float = 0.3) -> None:
    """Norms and clipped sum of the closed forms against one backward per record."""
    expected: dict[str, torch.Tensor] = {}
    norms = []
    for record, target in zip(x, y, strict=True):
        own = own_gradient(model, loss, record, target)
        norms.append(math.sqrt(sum(float(value.square().sum()) for value in own.values())))
        for key, value in own.items():
            expected[key] = expected.get(key, torch.zeros_like(value)) + value * min(1.0, clip / norms[-1])
    found = PerRecordGradients(model, loss, method="layerwise").clipped_sum(x, y, clip_norm=clip)
    np.testing.assert_allclose(found.norms.numpy(), norms, rtol=1e-9)
    for key, value in expected.items():
        torch.testing.assert_close(found.gradients[key].double(), value, rtol=0, atol=1e-9)


@pytest.mark.quick("signal-cnn")
@pytest.mark.parametrize("name", NAMES)
def test_closed_forms_are_one_backward_per_record(name: str) -> None:
    task = load(name, parameters_of(name))
    x, y = tensors(task, 5)
    compare(randomised(task.model(), 3).eval(), task.loss, x, y)


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


@pytest.mark.quick("signal-cnn")
@pytest.mark.parametrize("name", NAMES)
def test_several_rows_of_a_record_keep_the_closed_forms(name: str) -> None:
    """Three rows each, as of several views or images of a patient: the mean of their gradients, clipped once."""
    task = load(name, parameters_of(name))
    x, y = (values.unflatten(0, (2, 3)) for values in tensors(task, 6))
    model, loss = RowsOfPatients(randomised(task.model(), 4)), LossOfPatients(task.loss)
    assert Layerwise(model, loss).run(x, y).batch == 2
    compare(model, loss, x, y)


@pytest.mark.quick("signal-cnn")
@pytest.mark.parametrize("name", NAMES)
def test_noised_steps_find_what_made_up_records_hold(name: str) -> None:
    """Twenty steps, noise of 0.3 clip norms: every seed is fixed, and guessing gives at most a half."""
    task = load(name, EXAMPLES[name])
    torch.manual_seed(0)
    model, generator = task.model(), torch.Generator().manual_seed(1)
    records, test = made_up(task, 64), made_up(task, 64, seed=1)
    x, y, gradients = task.inputs(records), task.dataset(records).targets, PerRecordGradients(model, task.loss)
    for _ in range(20):
        rows = torch.randperm(64, generator=generator)[:32]
        found = gradients.clipped_sum(x[rows], y[rows], clip_norm=1.0).gradients
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                noise = 0.3 * torch.randn(parameter.shape, generator=generator)
                parameter -= (found[key].to(parameter) + noise) / 64
    with torch.no_grad():
        measured = task.metrics(model(task.inputs(test)), task.dataset(test).targets)
    # Of the three labels the first alone shows in the images.
    shown = {"multi-label-images": "accuracy_effusion", "segmentation": "dice"}.get(name, "accuracy")
    assert measured[shown] > 0.8


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


def test_signals_are_scaled_by_the_range_of_their_channel() -> None:
    task = load("signal-cnn", SIGNALS)
    x = np.zeros((2, 2, 40))
    x[0, 0], x[0, 1], x[1, 0], x[1, 1] = 2.5, 50, -9, 300
    inputs = task.inputs(Examples.of(x, [0, 2])).numpy()
    np.testing.assert_allclose(inputs[:, :, 0], [[0.5, -0.5], [-1, 1]])
    (use,) = task.inspect(Examples.of(x, [0, 2]))
    assert (use.name, use.values, use.clipped) == ("samples", 160, 80)
    one = load("signal-cnn", {"length": 40, "classes": 2, "range": "-1..1", "filters": 8})
    assert one.inputs(Examples.of(np.zeros((3, 40)), [0, 1, 1])).shape == (3, 1, 40)


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


def test_the_loss_of_pixels_is_the_formula_pixel_by_pixel() -> None:
    draw = np.random.default_rng(3)
    scores, classes = draw.normal(size=(2, 3, 4, 5)), draw.integers(-1, 3, (2, 4, 5))
    weights, dice = (1.0, 2.0, 5.0), 0.7
    found = PixelLoss(weights, dice)(torch.tensor(scores), torch.tensor(classes)).numpy()
    for i in range(2):
        entropy, both, sums, count = 0.0, [0.0] * 3, [0.0] * 3, 0
        for row in range(4):
            for column in range(5):
                k = classes[i, row, column]
                if k < 0:
                    continue
                p = np.exp(scores[i, :, row, column]) / np.exp(scores[i, :, row, column]).sum()
                entropy, count = entropy - weights[k] * math.log(p[k]), count + 1
                both[k] += p[k]
                sums = [s + q + (c == k) for c, (s, q) in enumerate(zip(sums, p, strict=True))]
        overlap = np.mean([(2 * b + 1) / (s + 1) for b, s in zip(both, sums, strict=True)])
        assert found[i] == pytest.approx(entropy / count + dice * (1 - overlap), rel=1e-12)


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


LABELS = EXAMPLES["multi-label-images"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("resnet", Table.of({"a": [1.0]}), "takes arrays"),
        ("resnet", Examples.of(np.zeros((2, 9, 9)), [0, 1]), r"\(1, 9, 10\) are expected, not \(1, 9, 9\)"),
        ("resnet", Examples.of(np.full((2, 9, 10), np.nan), [0, 1]), "2 of 2 records hold NaN"),
        ("resnet", Examples.of(np.zeros((2, 9, 10)), np.zeros((2, 3))), "one whole number per record"),
        ("multi-label-images", Examples.of(np.zeros((2, 9, 10)), [0, 1]), "an array .records, 3."),
        ("multi-label-images", Examples.of(np.zeros((1, 9, 10)), [[0, 2, 1]]), "neither 0 nor 1"),
        ("multi-label-images", Examples.of(np.zeros((1, 9, 10)), [[-1, -1, -1]]), "none that is known"),
        ("multi-label-images", Examples.of(np.zeros((1, 9, 10)), [["a", "b", "c"]]), "an array .records, 3."),
        ("segmentation", Examples.of(np.zeros((1, 9, 10)), [1]), "one mask of 9 × 10"),
        ("segmentation", Examples.of(np.zeros((1, 9, 10)), np.zeros((1, 3, 9, 10))), "one mask of 9 × 10"),
        ("segmentation", Examples.of(np.zeros((1, 9, 10)), np.full((1, 9, 10), 3)), "1 of 1 masks have pixels"),
        ("segmentation", Examples.of(np.zeros((1, 9, 10)), np.full((1, 9, 10), np.nan)), "1 of 1 masks have pixels"),
        ("segmentation", Examples.of(np.zeros((1, 9, 10)), np.full((1, 9, 10), 9)), "no labelled pixel"),
        ("signal-cnn", Examples.of(np.zeros((1, 2, 41)), [0]), "signals of shape"),
        ("signal-cnn", Examples.of(np.full((1, 2, 40), np.inf), [0]), "1 of 1 records hold NaN"),
    ],
    ids=range(15),
)
def test_bad_data_is_named(name: str, data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(name, parameters_of(name)).dataset(data)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("resnet", {"groups": 3}, "groups must divide filters"),
        ("resnet", {"groups": 4, "stages": 5}, "one value is all"),
        ("resnet", {"low": 255.0}, "low must be below high"),
        ("resnet", {"class-weights": "1|2"}, "class-weights must be 3"),
        ("resnet", {"first-stride": 0}, "first-stride"),
        ("multi-label-images", {"labels": "a"}, "two or more"),
        ("multi-label-images", {"labels": "a|a"}, "two or more"),
        ("segmentation", {"mask-values": "0|1"}, "3 different whole numbers"),
        ("segmentation", {"mask-values": "0|1|x"}, "3 different whole numbers"),
        ("segmentation", {"mask-values": "0|1|1.5"}, "3 different whole numbers"),
        ("segmentation", {"unlabelled": 7}, "none of the mask's values"),
        ("segmentation", {"class-weights": "1|2"}, "class-weights must be 3"),
        ("segmentation", {"class-weights": "1|2|-1"}, "class-weights must be 3"),
        ("segmentation", {"groups": 8}, "groups must divide filters"),
        ("segmentation", {"dice": float("nan")}, "dice"),
        ("signal-cnn", {"range": "5..-5"}, "range must be"),
        ("signal-cnn", {"range": "0..1|0..1|0..1"}, "range must be"),
        ("signal-cnn", {"range": "nan..1"}, "range must be"),
        ("signal-cnn", {"range": "0..inf"}, "range must be"),
        ("signal-cnn", {"kernel": 8}, "odd"),
        ("signal-cnn", {"groups": 4, "layers": 16}, "one value is all"),
    ],
    ids=range(21),
)
def test_bad_parameters_are_named(name: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load(name, parameters_of(name) | changed)
