"""Tables that are read when they are needed become a task's data set: targets now, inputs row by row.

A task's columns look at every cell by itself, so that a row becomes the same whatever is read with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from client_sdk.data import DataError, Examples, LazyExamples, LazyTable, Table, WrongRows
from client_sdk.data.records import Array
from client_sdk.tasks.columns import require_columns
from client_sdk.tasks.dataset import TaskDataset
from client_sdk.tasks.inputs import LazyInputs
from client_sdk.tasks.tables import TableTask
from client_sdk.tasks.task import Task, TaskParameters

AnyTableTask = TableTask[TaskParameters]


def takes_parts(task: Task) -> AnyTableTask | None:
    """The task, if it makes each row of the columns that it names and of nothing else; None: it needs whole tables."""
    if not isinstance(task, TableTask):
        return None
    own, plain = type(cast("AnyTableTask", task)), cast("type[AnyTableTask]", TableTask)
    return cast("AnyTableTask", task) if own.dataset is plain.dataset and own.inputs is plain.inputs else None


def table_inputs(task: AnyTableTask, records: LazyTable) -> LazyInputs:
    """Rows that are read on demand. Raises DataError: columns that lack, or the first row is none of the study's."""
    names = _names(task, records)
    labels = np.zeros(len(records), np.int8)
    everything = np.arange(len(records))
    encoded = LazyExamples(_Encoded(task, records, names), everything, labels, records.patients, records.named)
    return LazyInputs.of(_as_read, encoded)


def table_dataset(task: AnyTableTask, records: LazyTable) -> TaskDataset:
    """As `task.dataset`, of which the targets are read now. Raises as `table_inputs`; DataError: targets."""
    require_columns([*task.target_columns, *(column.name for column in task.columns)], records.names)
    targets = torch.cat([_targets(task, part) for part in records.parts(task.target_columns)])
    return TaskDataset(table_inputs(task, records), targets, records.patients)


def table_parts(task: AnyTableTask, records: LazyTable) -> Iterator[Table]:
    """What `task.inspect` takes, a part after another, each found to be what the task takes. Raises as the others."""
    for part in records.parts(list(dict.fromkeys([*task.target_columns, *_names(task, records)]))):
        task.inputs(part)
        yield part


@dataclass(frozen=True)
class _Encoded:
    """A reader of what the task makes of rows."""

    task: AnyTableTask
    table: LazyTable
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    def read(self, rows: Array) -> Array:
        return self.task.inputs(self.table.read(rows, self.names)).numpy()


def _as_read(examples: Examples) -> Tensor:
    return torch.as_tensor(examples.inputs)


def _names(task: AnyTableTask, records: LazyTable) -> tuple[str, ...]:
    names = [column.name for column in task.columns]
    require_columns(names, records.names)
    return tuple(names)


def _targets(task: AnyTableTask, part: Table) -> Tensor:
    try:
        return task.targets_of(part.columns)
    except WrongRows as error:
        raise DataError(error.located(part.first)) from error
