"""Made-up records of any built-in task, whose targets depend on their inputs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from private_learning.records import Examples, Histories, Records, Table
from private_learning.tasks import Task


def made_up(task: Task, count: int, seed: int = 0) -> Records:
    """Records that the task takes; every patient has one."""
    return task.synthetic_records(count, seed)


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
