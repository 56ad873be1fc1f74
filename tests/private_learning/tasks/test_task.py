"""What every classifier shares: its loss, its metrics, its check of labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from private_learning.records import DataError
from private_learning.tasks import Classification, load
from private_learning.tasks.task import TaskError, new_model


def test_metrics_refuse_outputs_that_are_not_numbers():
    task = load("last-layer", {"features": 1, "classes": 2, "bound": 1.0})
    with pytest.raises(DataError, match="finite outputs"):
        task.metrics(torch.tensor([[float("nan")]]), torch.tensor([1]))


COLUMNS = {"column.age": "18..90", "column.chol": "100..400; missing=250", "column.thal": "3|6|7; missing"}


BASE = {"label": "sick", **COLUMNS}


@pytest.mark.parametrize("classes", [2, 3])
def test_loss_and_metrics_agree_with_a_hand_computation(classes: int):
    task = load("logistic-regression", {**BASE, "classes": classes})
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(50, 1 if classes == 2 else classes, generator=generator, dtype=torch.float64)
    targets = torch.randint(classes, (50,), generator=generator)
    if classes == 2:
        p = 1 / (1 + np.exp(-outputs[:, 0].numpy()))
        probabilities = np.stack([1 - p, p], axis=1)
    else:
        e = np.exp(outputs.numpy())
        probabilities = e / e.sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(50), targets.numpy()])
    np.testing.assert_allclose(task.loss(outputs, targets).numpy(), expected, rtol=1e-12)
    metrics = task.metrics(outputs, targets)
    assert metrics["accuracy"] == pytest.approx(np.mean(probabilities.argmax(axis=1) == targets.numpy()))
    assert metrics["log_loss"] == pytest.approx(expected.mean(), rel=1e-12)


def classifier(classes: int) -> Classification:
    return load("last-layer", {"features": 1, "classes": classes, "bound": 1.0})  # type: ignore[return-value]


def test_labels_of_any_number_type_become_whole_numbers() -> None:
    for labels in ([0, 1, 2], [0.0, 1.0, 2.0], np.array([0, 1, 2], dtype=np.uint8)):
        found = classifier(3).integer_labels(np.asarray(labels))
        assert (found.dtype, found.tolist()) == (torch.int64, [0, 1, 2])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 3], "x: 1 of 2"),
        ([-1, 0], "x: 1 of 2"),
        ([0.5, 1.5], "x: 2 of 2"),
        ([np.nan, np.inf], "x: 2 of 2"),
        (["no", "yes"], "not text"),
    ],
    ids=["too large", "negative", "halves", "not finite", "text"],
)
def test_labels_that_are_no_class_are_counted_and_not_quoted(labels: list[object], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        classifier(3).integer_labels(np.array(labels), "x")
    assert "yes" not in str(caught.value)


def test_no_record_has_no_metrics() -> None:
    with pytest.raises(DataError, match="at least one record"):
        classifier(2).metrics(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64))


def _classifier(outputs: int, **attributes: int) -> Classification:
    methods = {"model": lambda self: torch.nn.Linear(2, outputs), "dataset": None, "__abstractmethods__": frozenset()}
    return type("Stay", (Classification,), methods | attributes)()


def test_a_classifier_without_its_number_of_classes_says_what_to_write() -> None:
    for use in (lambda task: task.loss, new_model):
        with pytest.raises(TaskError, match="Stay sets no number of classes: write classes = 2"):
            use(_classifier(1))


@pytest.mark.parametrize(
    ("classes", "outputs", "words"),
    [(2, 2, "need one output of the model, not 2"), (3, 2, "gives 2 outputs, and it needs one for each class")],
)
def test_a_model_with_another_number_of_outputs_is_refused_in_words(classes: int, outputs: int, words: str) -> None:
    task = _classifier(outputs, classes=classes)
    with pytest.raises(ValueError, match=words):
        task.loss(new_model(task)(torch.zeros(3, 2)), torch.tensor([0, 1, classes - 1]))
