"""What a study is compared with, where patients have several rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from private_learning.records import Table
from private_learning.tasks import TaskDataset, load
from private_learning.tasks.task import Classification
from simulation.baselines import baselines, fitted, metrics_of
from simulation.population import Population


def test_rows_that_fill_up_a_patient_are_of_no_class() -> None:
    # One patient of six rows, twelve of one: all but two of the eighteen rows are of class 1.
    patients = ["many"] * 6 + [f"p{place}" for place in range(12)]
    ill = [1] * 16 + [0] * 2
    age = np.linspace(0, 100, 18)
    table = Table.of({"patient": patients, "ill": ill, "age": age}, patient_column="patient")
    rows = load("logistic-regression", {"label": "ill", "column.age": "0..100"}).dataset(table)
    population = Population.of({"a": rows.by_patient(6)})
    found = baselines(load("logistic-regression", {"label": "ill", "column.age": "0..100"}), population, rows, seed=0)
    assert found.most_frequent == 16 / 18


def _skewed_and_alike(random: np.random.Generator, records: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-normal columns in a corner of a wide range, two of them nearly the same."""
    level = random.normal(size=(records, 1))
    values = np.exp(0.9 * level + 0.3 * random.normal(size=(records, 6)))
    values[:, 5] = values[:, 4] * (1 + 0.01 * random.normal(size=records))
    risk = 2 * np.log(values[:, 0] / values[:, 1]) + np.log(values[:, 2])
    return values / 200 - 1, (random.random(records) < 1 / (1 + np.exp(-risk))).astype(np.int64)


def _separable(random: np.random.Generator, records: int) -> tuple[np.ndarray, np.ndarray]:
    labels = random.integers(2, size=records)
    values = random.normal(size=(records, 4))
    values[:, 0] = (2 * labels - 1) * (0.3 + random.random(records))
    return values, labels


def _three_classes(random: np.random.Generator, records: int) -> tuple[np.ndarray, np.ndarray]:
    values = random.normal(size=(records, 3)) * np.array([1e-3, 1.0, 1e3])
    scores = values @ np.array([[2e3, 0, 0], [0, 1, -1], [0, 1e-3, 2e-3]]) + random.gumbel(size=(records, 3))
    return values, scores.argmax(1)


@pytest.mark.parametrize("make", [_skewed_and_alike, _separable, _three_classes])
def test_a_linear_model_is_as_good_as_an_unregularised_fit(make: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    """By scikit-learn, Newton's method on standardised columns. Ten times as many records as can be fitted by heart."""
    values, labels = make(np.random.default_rng(4), 5000)
    train, test = slice(1000), slice(1000, None)
    task = Plain(values.shape[1], int(labels.max()) + 1)
    inputs = torch.from_numpy(values).float()
    names = tuple(map(str, range(1000)))
    model = fitted(task, TaskDataset(inputs[train], torch.from_numpy(labels[train]), names))
    found = metrics_of(task, model, TaskDataset(inputs[test], torch.from_numpy(labels[test]), names * 4))
    other = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, solver="newton-cg", tol=1e-8, max_iter=1000))
    exact = other.fit(values[train], labels[train])
    assert found["accuracy"] == pytest.approx(exact.score(values[test], labels[test]), abs=0.003)
    # The same model in another encoding.
    again = fitted(task, TaskDataset(inputs[train] * 0.01 + 0.5, torch.from_numpy(labels[train]), names))
    moved = TaskDataset(inputs[test] * 0.01 + 0.5, torch.from_numpy(labels[test]), names * 4)
    assert metrics_of(task, again, moved)["accuracy"] == pytest.approx(found["accuracy"], abs=0.003)


class Plain(Classification):
    """A linear classifier of vectors."""

    def __init__(self, features: int, classes: int) -> None:
        self.features, self.classes = features, classes

    def model(self) -> torch.nn.Module:
        return self.linear(self.features)

    def dataset(self, data: Any) -> TaskDataset:
        raise NotImplementedError
