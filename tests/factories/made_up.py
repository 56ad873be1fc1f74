"""Made-up records of any built-in task, whose targets depend on their inputs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, cast

import numpy as np

from client_sdk.data import Examples, Records, Table
from client_sdk.tasks import Task
from client_sdk.tasks.arrays import LastLayer, SmallCnn
from client_sdk.tasks.bayesian import BayesianLogisticRegression
from client_sdk.tasks.multilabel import TableMultiLabel
from client_sdk.tasks.on_module import ModuleFeatures
from client_sdk.tasks.regression import TableRegression
from client_sdk.tasks.survival import Survival
from client_sdk.tasks.tables import TableClassifier, TableTask


def made_up(task: Task, count: int, seed: int = 0) -> Records:
    """Records that the task takes; every patient has one."""
    draw = np.random.default_rng(seed)
    if isinstance(task, SmallCnn):
        p = task.parameters
        labels = draw.integers(0, p.classes, count)
        pixels = draw.uniform(p.low, p.high, (count, p.channels, p.height, p.width))
        return Examples.of(np.where(labels[:, None, None, None] > 0, pixels, p.low), labels)
    if isinstance(task, LastLayer):
        labels = draw.integers(0, task.classes, count)
        return Examples.of(draw.normal(size=(count, task.parameters.features)) + labels[:, None], labels)
    if isinstance(task, ModuleFeatures):
        labels = draw.integers(0, task.classes, count)
        numbers = draw.uniform(task.parameters.low, task.parameters.high, (count, *task.parameters.sides))
        return Examples.of(np.where(labels.reshape(-1, *[1] * (numbers.ndim - 1)) > 0, numbers, 0.0), labels)
    if isinstance(task, TableTask):
        return _table(cast("TableTask[Any]", task), count, draw)
    raise NotImplementedError(type(task).__name__)


def _table(task: TableTask[Any], count: int, draw: np.random.Generator) -> Table:
    columns: dict[str, Any] = {column.name: column.random(count, draw) for column in task.columns}
    inputs = np.concatenate([column.encode(columns[column.name]) for column in task.columns], axis=1)
    # (n, 5) scores that a linear model can find.
    scores = inputs @ draw.normal(size=(inputs.shape[1], 5)) + 0.3 * draw.normal(size=(count, 5))
    return Table.of(columns | _targets(task, scores, draw))


def _targets(task: TableTask[Any], scores: np.ndarray, draw: np.random.Generator) -> dict[str, Any]:
    p, first = task.parameters, scores[:, 0]
    if isinstance(task, TableClassifier | BayesianLogisticRegression):
        ranks = np.argsort(np.argsort(first))
        labels = ranks * task.classes // len(first)
        return {p.label: labels if task.label_values is None else [task.label_values[k] for k in labels]}
    if isinstance(task, TableRegression):
        return {p.label: task.low + (task.high - task.low) / (1 + np.exp(-first))}
    if isinstance(task, TableMultiLabel):
        labels = {name: (scores[:, k % 5] > 0).astype(float) for k, name in enumerate(task.labels)}
        labels[task.labels[0]][::7] = np.nan
        return labels
    if isinstance(task, Survival):
        dies = draw.exponential(task.ends[-1] * np.exp(-first))
        gone = draw.uniform(0, 2 * task.ends[-1], len(first))
        return {p.time: np.minimum(dies, gone), p.event: (dies <= gone).astype(int)}
    raise NotImplementedError(type(task).__name__)


def saved(records: Records, folder: Path) -> Path:
    """A file that the commands read."""
    if isinstance(records, Examples):
        np.savez(folder / "records.npz", inputs=records.inputs, labels=records.labels)
        return folder / "records.npz"
    path = folder / "records.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(records.columns)
        for row in zip(*(column.tolist() for column in records.columns.values()), strict=True):
            writer.writerow(["" if cell is None or cell != cell else cell for cell in row])
    return path
