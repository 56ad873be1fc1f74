"""Rows as a task made them, and patients out of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from private_learning.records import DataError
from private_learning.tasks import TaskDataset
from private_learning.tasks.dataset import ABSENT, present


def test_excluded_patients_are_left_out():
    dataset = TaskDataset(torch.zeros(3, 2), torch.tensor([0, 1, 0]), ("a", "b", "c"))
    assert dataset.without(["b", "z"]).patients == ("a", "c")
    assert dataset.without(["b"]).targets.tolist() == [0, 0]
    with pytest.raises(DataError, match="at least one record"):
        dataset.without(["a", "b", "c"])


def test_two_records_of_one_patient_are_no_two_records():
    rows = TaskDataset(torch.zeros(3, 1), torch.tensor([0, 1, 1]), ("a", "b", "a"))
    with pytest.raises(DataError, match="1 records belong to a patient who has another") as caught:
        rows.by_patient(1)
    assert "'a'" not in str(caught.value)


def test_rows_of_a_patient_come_together_in_order_up_to_the_cap(caplog: pytest.LogCaptureFixture) -> None:
    inputs = torch.arange(10.0).view(5, 2)
    rows = TaskDataset(inputs, torch.tensor([0, 1, 2, 0, 1]), ("a", "b", "a", "a", "c"))
    with caplog.at_level("WARNING"):
        found = rows.by_patient(2)
    assert found.patients == ("a", "b", "c")
    assert found.targets.tolist() == [[0, 2], [1, ABSENT], [1, ABSENT]]
    torch.testing.assert_close(found.inputs[0], inputs[[0, 2]])
    torch.testing.assert_close(found.inputs[1:, 0], inputs[[1, 4]])
    assert "1 patients have more than 2 rows" in caplog.text
    assert found.by_patient(2) is found


@pytest.mark.parametrize(
    ("inputs", "patients", "words"),
    [
        (torch.zeros(2, 1), ("a",), "one length"),
        (torch.zeros(0, 1), (), "at least one record"),
        (torch.tensor([[1.0], [float("nan")]]), ("a", "b"), "NaN or an infinity"),
        (torch.tensor([[1.0], [float("-inf")]]), ("a", "b"), "NaN or an infinity"),
    ],
    ids=["lengths", "empty", "nan", "infinity"],
)
def test_rows_that_cannot_be_trained_on_are_refused(inputs: Tensor, patients: tuple[str, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        TaskDataset(inputs, torch.zeros(len(inputs), dtype=torch.int64), patients)


NAN = float("nan")
KINDS = {
    "numbers": torch.tensor([0.5, -1.0, 2.0, 0.0]),
    "labels": torch.tensor([[0.0, NAN], [1.0, 1.0], [NAN, 0.0], [1.0, 0.0]]),
    "masks": torch.tensor([[[0, 1], [2, ABSENT]], [[1, 1], [0, 0]], [[2, 2], [2, 2]], [[0, 0], [0, 1]]]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_targets_of_any_kind_come_together(kind: str) -> None:
    targets = KINDS[kind]
    found = TaskDataset(torch.arange(4.0)[:, None], targets, ("a", "b", "a", "c")).by_patient(2)
    torch.testing.assert_close(found.targets[0], targets[[0, 2]], equal_nan=True)
    torch.testing.assert_close(found.targets[1:, 0], targets[[1, 3]], equal_nan=True)
    assert present(found.targets, 2).tolist() == [[True, True], [True, False], [True, False]]
    assert found.without(["a"]).by_patient(2).targets.shape == found.targets[1:].shape


def test_rows_that_would_pass_for_missing_ones_are_not_grouped() -> None:
    with pytest.raises(DataError, match="must not be -1"):
        TaskDataset(torch.zeros(2, 1), torch.tensor([0, ABSENT]), ("a", "a")).by_patient(2)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (torch.tensor([0.5, NAN]), "1 of 2 records have none"),
        (torch.tensor([[NAN, NAN], [NAN, 1.0]]), "1 of 2 records have none"),
        (torch.tensor([0.5, float("inf")]), "infinity"),
    ],
    ids=["number", "labels", "infinity"],
)
def test_records_without_any_target_are_refused(targets: Tensor, words: str) -> None:
    with pytest.raises(DataError, match=words):
        TaskDataset(torch.zeros(2, 1), targets, ("a", "b"))
