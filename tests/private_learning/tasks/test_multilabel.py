"""Several labels: those that are known count, each label has its numbers, what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from private_learning.gradients import PerRecordGradients
from private_learning.records import DataError, Table
from private_learning.tasks import TaskError, load

NAN = float("nan")
BASE: dict[str, Any] = {"labels": "MI | stroke-2|sepsis", "column.x": "-1..1"}


def task_of(**parameters: object) -> Any:
    return load("multi-label", BASE | parameters)


def table(**labels: list[Any]) -> Table:
    given = {"MI": [1, 0, None], "stroke-2": [0, None, 1], "sepsis": [1, 1, 1], "x": [0.0, 0.5, 1.0]}
    return Table.of(given | labels)


def test_labels_are_columns_in_the_order_of_the_parameter_and_an_empty_cell_is_not_known() -> None:
    task = task_of()
    data = task.dataset(table())
    torch.testing.assert_close(
        data.targets, torch.tensor([[1, 0, 1], [0, NAN, 1], [NAN, 1, 1]], dtype=torch.float32), equal_nan=True
    )
    assert task.prediction_names(3) == ("probability_MI", "probability_stroke-2", "probability_sepsis")
    counts = task.target_counts(data.targets)
    assert counts == {"MI": 1, "MI not known": 1, "stroke-2": 1, "stroke-2 not known": 1, "sepsis": 3}
    words = task_of(**{"label-values": "no|yes"})
    named = {"MI": ["yes", "no", ""], "stroke-2": ["no", "", "yes"], "sepsis": ["yes"] * 3}
    torch.testing.assert_close(words.dataset(table(**named)).targets, data.targets, equal_nan=True)


def test_a_gradient_is_that_of_the_known_labels_alone() -> None:
    task = task_of(layers=1, hidden=4)
    data = task.dataset(table())
    torch.manual_seed(1)
    model = task.model().double()
    norms = PerRecordGradients(model, task.loss).norms(data.inputs.double(), data.targets)
    for row, norm in enumerate(norms.tolist()):
        scores = model(data.inputs[row : row + 1].double())[0]
        known = ~data.targets[row].isnan()
        truth = data.targets[row][known].double()
        total = torch.nn.functional.binary_cross_entropy_with_logits(scores[known], truth, reduction="sum")
        true = torch.autograd.grad(total, list(model.parameters()))
        assert norm == pytest.approx(math.sqrt(sum(float(g.square().sum()) for g in true)), rel=1e-9)


def test_metrics_are_those_of_each_label_and_their_means() -> None:
    draw = np.random.default_rng(3)
    scores = torch.as_tensor(draw.normal(size=(80, 3)))
    truth = (draw.random((80, 3)) < 0.4).astype(np.float64)
    truth[::5, 0] = NAN
    truth[:, 2] = 1.0
    found = task_of().metrics(scores, torch.as_tensor(truth).float())
    p = 1 / (1 + np.exp(-scores.numpy()))
    known = [~np.isnan(truth[:, k]) for k in range(3)]
    areas = [roc_auc_score(truth[known[k], k], p[known[k], k]) for k in range(2)]
    losses = [log_loss(truth[known[k], k], p[known[k], k], labels=[0, 1]) for k in range(3)]
    assert found["roc_auc_mi"] == pytest.approx(areas[0])
    assert found["roc_auc_stroke_2"] == pytest.approx(areas[1])
    # Nobody is without it: there is no area, and none in the mean.
    assert "roc_auc_sepsis" not in found
    assert found["roc_auc"] == pytest.approx(np.mean(areas))
    assert found["log_loss"] == pytest.approx(np.mean(losses))
    assert found["accuracy_sepsis"] == pytest.approx(np.mean(p[:, 2] > 0.5))


def test_of_many_labels_means_alone_are_shown_and_of_like_names_their_places() -> None:
    many = "|".join(f"code {k}" for k in range(20))
    task = load("multi-label", {"labels": many, "column.x": "-1..1"})
    found = task.metrics(torch.zeros(4, 20), torch.tensor([[0.0, 1.0] * 10] * 2 + [[1.0, 0.0] * 10] * 2))
    assert set(found) == {"log_loss", "accuracy", "roc_auc"}
    alike = load("multi-label", {"labels": "a b|a-b|++", "column.x": "-1..1"})
    shown = alike.metrics(torch.zeros(2, 3), torch.tensor([[0.0] * 3, [1.0] * 3]))
    assert {"accuracy_label_1", "accuracy_label_2", "accuracy_label_3"} < set(shown)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            {"MI": [1, 2, 0]},
            "label column MI: 1 of 3 values are none of the study's label-values 0|1, the first",
        ),
        ({"sepsis": [1, None, None], "MI": [1, None, 1]}, "1 of 3 records have none that is known"),
    ],
    ids=["no label", "none known"],
)
def test_labels_that_are_none_are_refused(labels: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as caught:
        task_of().dataset(table(**labels))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"labels": "MI"}, "two or more"),
        ({"labels": "MI|MI"}, "two or more"),
        ({"labels": "MI||x"}, "two or more"),
        ({"label-values": "yes"}, "label-values"),
    ],
    ids=["one", "twice", "empty", "one word"],
)
def test_parameters_that_are_none_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        task_of(**parameters)
