"""Residual networks, several labels of images, segmentation and signals: records, losses, metrics, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from private_learning.gradients import PerRecordGradients
from private_learning.records import DataError, Examples, Table
from private_learning.tasks import TaskError, load
from private_learning.tasks.registry import EXAMPLES
from tests.factories.made_up import made_up
from tests.private_learning.tasks.image_tasks import (
    NAMES,
    parameters_of,
)


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
