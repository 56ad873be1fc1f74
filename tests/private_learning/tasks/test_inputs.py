"""Inputs that are read on demand are, row by row, those of the same records in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from private_learning.records import DataError, Examples, LazyExamples, Records
from private_learning.records.records import Array
from private_learning.tasks import Task, TaskDataset, TaskError, dataset_of, load
from private_learning.tasks.inputs import LazyInputs, in_memory, joined, parts

_CNN = {"height": 6, "width": 5, "classes": 3}


@dataclass
class Counting:
    """A reader of an array that keeps what it was asked for."""

    inputs: Array
    asked: list[list[int]] = field(default_factory=list[list[int]])

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, rows: Array) -> Array:
        self.asked.append(rows.tolist())
        return self.inputs[rows]


def _examples(count: int = 23) -> Examples:
    draw = np.random.default_rng(4)
    images = draw.integers(0, 256, (count, 6, 5)).astype(np.uint8)
    return Examples.of(images, draw.integers(0, 3, count), [f"p{row % 9}" for row in range(count)])


def _lazily(examples: Examples) -> tuple[LazyExamples, Counting]:
    reader = Counting(examples.inputs)
    return LazyExamples.of(reader, examples.labels, examples.patients), reader


def test_rows_read_on_demand_are_those_in_memory() -> None:
    examples = _examples()
    lazy, reader = _lazily(examples)
    here, there = (dataset_of(load("cnn", _CNN), data) for data in (examples, lazy))
    # The shape alone was looked at.
    assert reader.asked == [[0]]
    assert torch.equal(here.targets, there.targets)
    assert here.patients == there.patients
    assert isinstance(there.inputs, LazyInputs)
    assert isinstance(here.inputs, Tensor)
    assert (there.inputs.shape, there.inputs.dtype) == (here.inputs.shape, here.inputs.dtype)
    for rows in (torch.tensor([4, 4, 0]), slice(3, 9), [22, 1], torch.tensor([], dtype=torch.int64)):
        assert torch.equal(there.inputs[rows], here.inputs[rows])
    assert torch.equal(there.inputs[7], here.inputs[7])
    assert torch.equal(in_memory(there.inputs), here.inputs)


def test_views_of_views_name_the_same_rows() -> None:
    examples = _examples()
    lazy, reader = _lazily(examples)
    here, there = (dataset_of(load("cnn", _CNN), data.take(range(20, 2, -1))) for data in (examples, lazy))
    for found in (here.without(["p1", "p5"]), there.without(["p1", "p5"])):
        assert len(found) == 14
    reader.asked.clear()
    one, other = (dataset.without(["p1"]).by_patient(2) for dataset in (here, there))
    assert reader.asked == []
    assert one.grouped
    assert other.grouped
    assert one.patients == other.patients
    assert torch.equal(one.targets, other.targets)
    assert one.inputs.shape == other.inputs.shape
    assert torch.equal(in_memory(one.inputs), in_memory(other.inputs))


def test_a_row_that_stands_in_for_a_missing_one_is_read_once() -> None:
    examples = Examples.of(np.zeros((3, 6, 5), np.uint8), [0, 1, 2], ["a", "b", "a"])
    lazy, reader = _lazily(examples)
    dataset = dataset_of(load("cnn", _CNN), lazy).by_patient(2)
    reader.asked.clear()
    assert dataset.inputs[torch.tensor([1, 1, 0])].shape == (3, 2, 1, 6, 5)
    assert reader.asked == [[0, 1, 2]]


def test_all_rows_come_in_parts_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy, reader = _lazily(_examples())
    inputs = dataset_of(load("cnn", _CNN), lazy).inputs
    monkeypatch.setattr("private_learning.tasks.inputs.PART_BYTES", 10 * 6 * 5 * 4)
    reader.asked.clear()
    assert [len(part) for part in parts(inputs)] == [10, 10, 3]
    assert [len(rows) for rows in reader.asked] == [10, 10, 3]


def test_data_sets_are_joined_without_being_read() -> None:
    examples = _examples()
    (first, one), (second, other) = _lazily(examples.take(range(9))), _lazily(examples.take(range(9, 23)))
    task = load("cnn", _CNN)
    sets = [dataset_of(task, first), dataset_of(task, second)]
    one.asked.clear()
    other.asked.clear()
    both = joined([dataset.inputs for dataset in sets])
    assert (one.asked, other.asked) == ([], [])
    assert torch.equal(in_memory(both), task.inputs(examples))
    with pytest.raises(DataError, match="all of them into memory"):
        joined([sets[0].inputs, torch.zeros(1, 1, 6, 5)])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.full((4, 6, 5), np.nan), "1 of 1 records hold NaN"),
        (np.zeros((4, 6, 6)), "images of shape"),
        (np.zeros((4, 6, 5), dtype=str), "an array of numbers"),
    ],
    ids=["nan", "shape", "text"],
)
def test_records_that_cannot_be_trained_on_are_refused_when_read(bad: Array, words: str) -> None:
    good = np.zeros((4, 6, 5))
    reader = Counting(good)
    inputs = dataset_of(load("cnn", _CNN), LazyExamples.of(reader, [0, 1, 2, 0])).inputs
    reader.inputs = bad
    with pytest.raises(DataError, match=words):
        inputs[torch.tensor([2])]


def test_a_reader_that_fails_is_named_by_its_kind_of_error_alone() -> None:
    class Gone(Counting):
        def read(self, rows: Array) -> Array:
            raise FileNotFoundError(2, "No such file", "/data/miller_john.png")

    with pytest.raises(DataError, match=r"some of 2 records can no longer be read \(FileNotFoundError\)") as caught:
        LazyExamples.of(Gone(np.zeros((3, 1))), [0, 1, 0]).read([0, 2])
    assert "miller" not in str(caught.value)


class Doubled(Task):
    """Reads labels of whole records only, and leaves rows out if it is told to."""

    def __init__(self, keep: int | None = None) -> None:
        self.keep = keep

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets) ** 2

    def dataset(self, data: Records) -> TaskDataset:
        assert isinstance(data, Examples)
        kept = data if self.keep is None else data.take(range(self.keep))
        return TaskDataset(torch.as_tensor(2 * kept.inputs).float(), torch.as_tensor(kept.labels), kept.patients)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {}


def test_a_task_without_targets_of_its_own_reads_every_record_once_for_them() -> None:
    examples = Examples.of(np.arange(6.0)[:, None], [3, 1, 4, 1, 5, 9])
    lazy, reader = _lazily(examples)
    dataset = dataset_of(Doubled(), lazy)
    assert dataset.targets.tolist() == [3, 1, 4, 1, 5, 9]
    assert sorted(row for rows in reader.asked for row in rows) == [0, 0, 0, 1, 2, 3, 4, 5]
    assert torch.equal(in_memory(dataset.inputs), 2 * torch.arange(6.0)[:, None])
    with pytest.raises(TaskError, match="one input of every record"):
        dataset_of(Doubled(keep=2), lazy)


def test_a_task_whose_dataset_is_newer_than_its_targets_is_asked_for_whole_records() -> None:
    from private_learning.tasks.arrays import SmallCnn

    class Shifted(SmallCnn):
        def dataset(self, data: Records) -> TaskDataset:
            made = super().dataset(data)
            return TaskDataset(made.inputs, (made.targets + 1) % 3, made.patients)

    examples = _examples()
    lazy, _ = _lazily(examples)
    task = Shifted(_CNN)
    assert torch.equal(dataset_of(task, lazy).targets, task.dataset(examples).targets)
