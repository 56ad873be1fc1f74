"""Made-up records of any built-in task, whose targets depend on their inputs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, cast

import numpy as np

from private_learning.records import Examples, Histories, Records, Table
from private_learning.tasks import Task
from private_learning.tasks.arrays import LastLayer, SmallCnn
from private_learning.tasks.bayesian import BayesianLogisticRegression
from private_learning.tasks.multilabel import TableMultiLabel
from private_learning.tasks.on_module import ModuleFeatures
from private_learning.tasks.regression import TableRegression
from private_learning.tasks.residual import ImageLabels, ResidualNetwork
from private_learning.tasks.scaled import ScaledArrays
from private_learning.tasks.segmentation import Segmentation
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.signals import SignalNetwork
from private_learning.tasks.survival import SurvivalTask
from private_learning.tasks.tables import TableClassifier, TableTask


def made_up(task: Task, count: int, seed: int = 0) -> Records:
    """Records that the task takes; every patient has one."""
    draw = np.random.default_rng(seed)
    if isinstance(task, SmallCnn | ResidualNetwork | SignalNetwork):
        labels = draw.integers(0, task.classes, count)
        pixels, low = _pixels(task, count, draw)
        return Examples.of(np.where(labels.reshape(-1, *(1,) * len(task.shape)) > 0, pixels, low), labels)
    if isinstance(task, ImageLabels):
        labels = draw.integers(0, 2, (count, len(task.labels))).astype(float)
        pixels, low = _pixels(task, count, draw)
        images = np.where(labels[:, :1, None, None] > 0, pixels, low)
        labels[::7, 0] = np.nan
        return Examples.of(images, labels)
    if isinstance(task, Segmentation):
        return _with_masks(task, count, draw)
    if isinstance(task, LastLayer):
        labels = draw.integers(0, task.classes, count)
        return Examples.of(draw.normal(size=(count, task.parameters.features)) + labels[:, None], labels)
    if isinstance(task, ModuleFeatures):
        labels = draw.integers(0, task.classes, count)
        numbers = draw.uniform(task.parameters.low, task.parameters.high, (count, *task.parameters.sides))
        return Examples.of(np.where(labels.reshape(-1, *[1] * (numbers.ndim - 1)) > 0, numbers, 0.0), labels)
    if isinstance(task, CodeSequences):
        return _histories(task, count, draw)
    if isinstance(task, TableTask):
        return _table(cast("TableTask[Any]", task), count, draw)
    raise NotImplementedError(type(task).__name__)


def _pixels(task: ScaledArrays, count: int, draw: np.random.Generator) -> tuple[np.ndarray, Any]:
    """(count, ...) in the task's range, and its smallest value."""
    low, high = task.reach
    return low + (high - low) * draw.uniform(size=(count, *task.shape)), low


def _with_masks(task: Segmentation, count: int, draw: np.random.Generator) -> Examples:
    """Every class is a band of rows, brighter than the one before."""
    p = task.parameters
    edges = np.sort(draw.integers(0, p.height + 1, (count, p.classes - 1)), axis=1)
    classes = (np.arange(p.height) >= edges[:, :, None]).sum(1)
    shades = p.low + (p.high - p.low) * (classes[:, None, :, None] + draw.uniform(size=(count, *p.shape))) / p.classes
    masks = np.repeat(np.array(p.values)[classes][:, :, None], p.width, axis=2)
    return Examples.of(shades, masks)


def _table(task: TableTask[Any], count: int, draw: np.random.Generator) -> Table:
    columns: dict[str, Any] = {column.name: column.random(count, draw) for column in task.columns}
    inputs = np.concatenate([column.encode(columns[column.name]) for column in task.columns], axis=1)
    # (n, 5) scores that a linear model can find.
    scores = inputs @ draw.normal(size=(inputs.shape[1], 5)) + 0.3 * draw.normal(size=(count, 5))
    return Table.of(columns | _targets(task, scores, draw))


def _histories(task: CodeSequences, count: int, draw: np.random.Generator) -> Histories:
    """Some patients have no event; who has many of the first code is in a higher class."""
    patients = [f"p{k}" for k in range(count)]
    events: dict[str, Table] = {}
    hits = np.zeros(count)
    for table in task.events:
        owner = draw.integers(0, count, 6 * count)
        codes = draw.choice([*table.codes, "something else"], len(owner))
        hits += np.bincount(owner[codes == table.codes[0]], minlength=count)
        columns = {table.code: codes, table.time: draw.uniform(0, 365, len(owner)), "patient": [f"p{k}" for k in owner]}
        events[table.name] = Table.of(columns, patient_column="patient")
    ranks = np.argsort(np.argsort(hits + 1e-3 * draw.normal(size=count))) * task.classes // count
    labels = ranks if task.label_values is None else [task.label_values[k] for k in ranks]
    columns = {column.name: column.random(count, draw) for column in task.columns}
    whole = Table.of(columns | {task.parameters.label: labels, "patient": patients}, patient_column="patient")
    return Histories.with_events(whole, events)


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
    if isinstance(task, SurvivalTask):
        dies = draw.exponential(task.ends[-1] * np.exp(-first))
        gone = draw.uniform(0, 2 * task.ends[-1], len(first))
        return {p.time: np.minimum(dies, gone), p.event: (dies <= gone).astype(int)}
    raise NotImplementedError(type(task).__name__)


def saved(records: Records, folder: Path) -> Path:
    """A file that the commands read."""
    if isinstance(records, Examples):
        np.savez(folder / "records.npz", inputs=records.inputs, labels=records.labels)
        return folder / "records.npz"
    if isinstance(records, Histories):
        whole = folder / "histories"
        whole.mkdir()
        for name, table in {"patients": records, **records.events}.items():
            _written(table, whole / f"{name}.csv", {"patient": table.patients})
        return whole
    assert isinstance(records, Table)
    return _written(records, folder / "records.csv", {})


def _written(table: Table, path: Path, more: dict[str, Any]) -> Path:
    columns = {name: column.tolist() for name, column in table.columns.items()} | more
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(["" if cell is None or cell != cell else cell for cell in row])
    return path
