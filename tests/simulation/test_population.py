"""Populations: names, rows of clients, and the digest of who has what."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from private_learning.tasks import TaskDataset, load
from simulation.population import Population
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS


def test_names_say_the_order_and_nobody_is_without_records() -> None:
    dataset = load("logistic-regression", TASK_PARAMETERS).dataset(records(12))
    rows = tuple(np.arange(i, i + 1) for i in range(12))
    assert Population.split(dataset, rows).names[:3] == ("client-00", "client-01", "client-02")
    with pytest.raises(ValueError, match="in order of their names"):
        Population(dataset, rows[:2], ("b", "a"))
    for wrong, said in (([-1], "has a row that"), ([12], "has a row that"), ([3, 3], "two records of one patient")):
        with pytest.raises(ValueError, match=f"client-0 {said}|client-0 has {said}"):
            Population.split(dataset, [np.array(wrong), np.arange(3)])
    twice = TaskDataset(dataset.inputs, dataset.targets, ("a", "a", *map(str, range(10))))
    assert len(Population.split(twice, [np.array([0, 2]), np.array([1, 3])])) == 2
    with pytest.raises(ValueError, match="two records of one patient"):
        Population.split(twice, [np.array([0, 1])])
    with pytest.raises(ValueError, match="client-0 has no records"):
        Population.split(dataset, [np.arange(0), np.arange(3)])


def dataset(count: int = 6) -> TaskDataset:
    inputs = torch.arange(2.0 * count).view(count, 2)
    return TaskDataset(inputs, torch.arange(count) % 2, tuple(f"p{row}" for row in range(count)))


def test_a_client_has_its_rows_in_its_own_order() -> None:
    population = Population.split(dataset(), [np.array([4, 0]), np.array([1, 2, 4])])
    records = population.records_of(0)
    assert records.patients == ("p4", "p0")
    assert records.inputs[:, 0].tolist() == [8.0, 0.0]
    assert records.targets.tolist() == [0, 0]


def test_everybody_is_every_record_once() -> None:
    whole = Population.split(dataset(), [np.array([4, 0]), np.array([1, 2, 4])]).everybody()
    assert whole.inputs[:, 0].tolist() == [0.0, 2.0, 4.0, 8.0]
    assert len(set(whole.patients)) == len(whole) == 4


def test_clients_with_data_of_their_own_are_joined_in_the_order_of_their_names() -> None:
    population = Population.of({"b": dataset(2), "a": dataset(3), "c": dataset(1)})
    assert population.names == ("a", "b", "c")
    assert [rows.tolist() for rows in population.rows] == [[0, 1, 2], [3, 4], [5]]
    # A patient of two clients counts as two records.
    assert population.dataset.patients[0] == "a/p0"
    assert population.records_of(1).inputs.tolist() == dataset(2).inputs.tolist()
    other = TaskDataset(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64), ("x",))
    with pytest.raises(ValueError, match="different shapes"):
        Population.of({"a": dataset(1), "b": other})


def test_the_digest_is_of_every_record_and_of_who_has_it() -> None:
    rows = [np.array([0, 1]), np.array([2])]
    base = Population.split(dataset(), rows).digest()
    assert base == Population.split(dataset(), rows).digest()
    changed = dataset()
    changed.inputs[5, 1] += 1
    others = [
        Population.split(changed, rows),
        Population.split(dataset(), [np.array([0]), np.array([1, 2])]),
        Population.split(dataset(), [np.array([1, 0]), np.array([2])]),
        Population(dataset(), tuple(rows), ("a", "b")),
    ]
    assert len({base, *(other.digest() for other in others)}) == 5
