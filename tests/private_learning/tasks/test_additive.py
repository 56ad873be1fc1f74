"""The additive task: a record's gradient and its bound, and predictions of monotone curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from private_learning.gradients import PerRecordGradients
from private_learning.records import Table
from private_learning.tasks import TaskError, load
from private_learning.tasks.additive import AdditiveModel
from private_learning.tasks.curves import scores

PARAMETERS: dict[str, Any] = {
    "label": "ill",
    "bins": 12,
    "column.age": "18..90; increasing",
    "column.chol": "100..400; missing=240; decreasing",
    "column.pain": "1|2|3|4; missing; frequencies=10|20|30|40",
}


@pytest.fixture
def task() -> AdditiveModel:
    declared = load("additive", PARAMETERS)
    assert isinstance(declared, AdditiveModel)
    return declared


def weights_of(task: AdditiveModel, seed: int = 1) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {"weight": draw.normal(size=(1, task.features)).astype(np.float32), "bias": np.array([0.3], np.float32)}


def test_each_record_s_gradient_is_its_own_backward_and_within_the_public_bound(task: AdditiveModel) -> None:
    dataset = task.dataset(task.synthetic_records(60, 4))
    inputs, targets = dataset.inputs.double(), dataset.targets
    model = task.model().double()
    torch.nn.init.normal_(model.weight, std=30.0)  # type: ignore[arg-type]
    norms = PerRecordGradients(model, task.loss).norms(inputs, targets)
    for at in range(60):
        model.zero_grad()
        task.loss(model(inputs[at : at + 1]), targets[at : at + 1]).sum().backward()
        own = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        assert float(norms[at]) == pytest.approx(float(own.norm()), rel=1e-9, abs=1e-12)
    # Weights so large that some records are wholly wrong: the bound is nearly met, and never passed.
    assert 0.8 * task.longest_gradient < float(norms.max()) <= task.longest_gradient


def test_the_bound_is_of_the_worst_record(task: AdditiveModel) -> None:
    # Age at an end, cholesterol at an end, the rarest category.
    worst = task.inputs(Table.of({"age": [18], "chol": [400.0], "pain": ["1"]}))
    assert float(worst.norm()) == pytest.approx((task.longest_gradient**2 - 1) ** 0.5, rel=1e-6)


def test_predictions_follow_the_trends_and_nothing_else_changes(task: AdditiveModel) -> None:
    released = weights_of(task)
    read = task.for_prediction(released)
    for (column, before), (_, after) in zip(
        task.weights_of_columns(released), task.weights_of_columns(read), strict=True
    ):
        values, missing = scores(column, after)
        if column.name == "pain":
            np.testing.assert_array_equal(before, after)
        else:
            steps = np.diff(values) * (1 if column.name == "age" else -1)
            assert steps.min() > -1e-5
            assert np.diff(scores(column, before)[0]).min() < 0 < np.diff(scores(column, before)[0]).max()
        if column.name == "chol":
            # With the intercept: a patient whose cholesterol is not known keeps the score but for the other curves.
            other = float(read["bias"][0]) - float(released["bias"][0])
            age_constant = other - (scores(column, before)[1] - missing)
            assert abs(age_constant) < 5
    assert {name: array.dtype for name, array in read.items()} == {
        name: array.dtype for name, array in released.items()
    }


def test_a_patient_without_the_number_keeps_the_score() -> None:
    task = load("additive", {"label": "ill", "column.chol": "100..400; missing=240; decreasing"})
    assert isinstance(task, AdditiveModel)
    released, inputs = weights_of(task), task.inputs(Table.of({"chol": [float("nan"), 120.0]}))
    scored = [
        inputs @ torch.as_tensor(w["weight"][0]) + float(w["bias"][0])
        for w in (released, task.for_prediction(released))
    ]
    assert float(scored[0][0]) == pytest.approx(float(scored[1][0]), abs=1e-5)
    assert abs(float(scored[0][1]) - float(scored[1][1])) > 1e-3


def test_without_a_trend_predictions_are_of_the_released_weights() -> None:
    task = load("additive", {"label": "ill", "column.age": "18..90"})
    released = weights_of(task)  # type: ignore[arg-type]
    assert task.for_prediction(released) is released


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"classes": 3}, "classes"),
        ({"label-values": "a|b|c"}, "two words"),
        ({"bins": 3}, "bins"),
        ({"loss": "focal"}, "loss"),
    ],
)
def test_what_the_model_cannot_be_is_said(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        load("additive", PARAMETERS | changed)
