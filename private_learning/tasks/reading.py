"""Data sets that a task makes of records, in memory or of rows that are read on demand.

Every record that is read on demand is made by itself. The order, the place and the other records of a reading never
change a bit of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from operator import add
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from private_learning.records import DataError, LazyExamples, LazyTable, OnDemand, Records
from private_learning.tasks.columns import require_readable
from private_learning.tasks.dataset import TaskDataset
from private_learning.tasks.inputs import Inputs, LazyInputs
from private_learning.tasks.lacking import with_lacking
from private_learning.tasks.tables import TableTask
from private_learning.tasks.task import InputUse, Task, TaskError

# Records that are looked at for a warning where all would have to be read for it.
_LOOKED_AT = 64


@dataclass(frozen=True)
class Making:
    """k records -> (k, ...) the inputs that the task makes of each alone.

    in_round: they were checked before, and a cell without a declared value ends no round
    """

    task: Task
    in_round: bool = False

    def __call__(self, examples: Records) -> Tensor:
        """Raises DataError: records that the task cannot take, NaN or an infinity. TaskError: its code failed."""
        try:
            if _cell_by_cell(self.task):
                inputs = self.task.round_inputs(examples) if self.in_round else self.task.inputs(examples)
            else:
                inputs = torch.cat([self.task.inputs(examples.take([row])) for row in range(len(examples))])
        except (DataError, TaskError):
            raise
        except Exception as error:
            name = type(self.task).__name__
            raise TaskError(f"task {name} could not read a record: {type(error).__name__}") from error
        if len(inputs) != len(examples):
            raise TaskError(f"task {type(self.task).__name__} does not make one input of every record")
        wrong = int((~torch.isfinite(inputs.flatten(1)).all(dim=1)).sum())
        if wrong:
            raise DataError(f"inputs: {wrong} of {len(examples)} records that were read have NaN or an infinity")
        return inputs


def dataset_of(task: Task, records: Records, *, checked: bool = False) -> TaskDataset:
    """Return the data set of `task.dataset`. For records that are read on demand the inputs are rows that are, too.

    checked: the cells of a table were read before the first round. They are not all read again, and none ends a round

    Raises:
        DataError: as `task.dataset`. For a table that is read on demand, any cell. For others labels, or the first
            record.
    """
    if not isinstance(records, OnDemand):
        return task.dataset(records)
    records = _complete(task, records)
    if isinstance(records, LazyTable) and _cell_by_cell(task):
        if not checked:
            require_readable(task.columns, records.parts())
        if _cell_by_cell(task, extra=("dataset",)):
            targets = torch.cat([task.table_targets(part) for part in records.parts()])
            return TaskDataset(LazyInputs.of(Making(task, in_round=True), records), targets, records.patients)
    labels_only = isinstance(records, LazyExamples) and _of_labels_alone(task)
    targets = task.targets(records) if labels_only else _targets_in_parts(task, records)
    return TaskDataset(LazyInputs.of(Making(task, in_round=True), records), targets, records.patients)


def inputs_of(task: Task, records: Records) -> Inputs:
    """Return the inputs of `task.inputs`, read on demand where the records are. Raises as `dataset_of`."""
    if not isinstance(records, OnDemand):
        return task.inputs(records)
    return LazyInputs.of(Making(task), _complete(task, records))


def inspected(task: Task, records: Records) -> tuple[InputUse, ...]:
    """Return the result of `task.inspect`. Records that are read on demand are all read once, as in training.

    Raises:
        DataError: some cannot be read, or are no records that the task takes.
    """
    if not isinstance(records, OnDemand):
        return task.inspect(records)
    uses: dict[str, InputUse] = {}
    for part in records.parts():
        Making(task)(part)
        for use in task.inspect(part):
            uses[use.name] = _added(uses[use.name], use) if use.name in uses else use
    return tuple(uses.values())


def warnings_of(task: Task, records: Records) -> tuple[str, ...]:
    """Return the warnings of `task.warnings`.

    Of examples that are read on demand it looks at some, evenly among all.
    """
    if not isinstance(records, OnDemand):
        return task.warnings(records)
    if not isinstance(records, LazyExamples):
        return ()
    rows = np.unique(np.linspace(0, len(records) - 1, _LOOKED_AT).astype(np.int64))
    # A record that cannot be read is refused where all are read, with its count.
    with suppress(DataError):
        looked_at = f"(of {len(records)} records {len(rows)} were looked at)"
        return tuple(f"{warning} {looked_at}" for warning in task.warnings(records.read(rows)))
    return ()


def _complete(task: Task, records: OnDemand) -> OnDemand:
    """Return the records with the columns that a site may lack: tables of several hospitals may become one."""
    if isinstance(records, LazyTable) and isinstance(task, TableTask):
        return with_lacking(task.columns, records)
    return records


def _added(first: InputUse, second: InputUse) -> InputUse:
    (name, *counts), (_, *more) = astuple(first), astuple(second)
    return InputUse(name, *map(add, counts, more))


def _cell_by_cell(task: Task, extra: Sequence[str] = ()) -> TypeGuard[TableTask[Any]]:
    """Return whether its inputs are the declared columns of a table, with each cell made by itself and no override."""
    kinds, changed = type(task).__mro__, set(vars(task))
    if not isinstance(task, TableTask):
        return False
    changed = changed.union(*map(vars, kinds[: kinds.index(TableTask)]))
    return {"inputs", "round_inputs", "_table", *extra}.isdisjoint(changed)


def _of_labels_alone(task: Task) -> bool:
    """Has the task `targets` of its own, as new as its `dataset`?"""
    newest = next(kind for kind in type(task).__mro__ if not {"targets", "dataset"}.isdisjoint(vars(kind)))
    return newest is not Task and "targets" in vars(newest)


def _targets_in_parts(task: Task, records: OnDemand) -> Tensor:
    """Of a task that makes targets of whole records only: each is read once, and its inputs are dropped."""
    targets: list[Tensor] = []
    for part in records.parts():
        dataset = task.dataset(part)
        if dataset.patients != part.patients:
            raise TaskError(
                f"task {type(task).__name__} does not make one input of every record, in their order: leave records "
                "out of the data instead"
            )
        targets.append(dataset.targets)
    return torch.cat(targets)
