"""Records become a task's data set: as the task makes it, or of rows that are read when they are needed.

Of those, every record is made by itself, whoever else is read with it: the order and the place of reading never change
a bit of what one record becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from client_sdk.data import DataError, Examples, LazyExamples, LazyTable, Records
from client_sdk.tasks.dataset import TaskDataset
from client_sdk.tasks.inputs import Inputs, LazyInputs
from client_sdk.tasks.table_reading import table_dataset, table_inputs, table_parts, takes_parts
from client_sdk.tasks.task import InputUse, Task, TaskError


@dataclass(frozen=True)
class Making:
    """k examples -> (k, ...) the inputs that the task makes of each alone."""

    task: Task

    def __call__(self, examples: Examples) -> Tensor:
        """Raises DataError: records that the task cannot take, NaN or an infinity. TaskError: its code failed."""
        try:
            found = torch.cat([self.task.inputs(examples.take([row])) for row in range(len(examples))])
        except (DataError, TaskError):
            raise
        except Exception as error:
            name = type(self.task).__name__
            raise TaskError(f"task {name} could not read a record: {type(error).__name__}") from error
        if len(found) != len(examples):
            raise TaskError(f"task {type(self.task).__name__} does not make one input of every record")
        wrong = int((~torch.isfinite(found.flatten(1)).all(dim=1)).sum())
        if wrong:
            raise DataError(f"inputs: {wrong} of {len(examples)} records that were read have NaN or an infinity")
        return found


def dataset_of(task: Task, records: Records) -> TaskDataset:
    """As `task.dataset`; of records that are read on demand the inputs are rows that are, too.

    Raises:
        DataError: as `task.dataset`; of records that are read on demand: labels, or the first record.
    """
    if isinstance(records, LazyTable):
        own = takes_parts(task)
        return task.dataset(records.in_memory()) if own is None else table_dataset(own, records)
    if not isinstance(records, LazyExamples):
        return task.dataset(records)
    targets = task.targets(records) if _of_labels_alone(task) else _targets_in_parts(task, records)
    return TaskDataset(LazyInputs.of(Making(task), records), targets, records.patients)


def inputs_of(task: Task, records: Records) -> Inputs:
    """As `task.inputs`; of records that are read on demand rows that are, too. Raises as `dataset_of`."""
    if isinstance(records, LazyTable):
        own = takes_parts(task)
        return task.inputs(records.in_memory()) if own is None else table_inputs(own, records)
    return LazyInputs.of(Making(task), records) if isinstance(records, LazyExamples) else task.inputs(records)


def inspected(task: Task, records: Records) -> tuple[InputUse, ...]:
    """As `task.inspect`; records that are read on demand are all read once, as they would be in training.

    Raises:
        DataError: some cannot be read, or are nothing that the task takes.
    """
    if isinstance(records, LazyTable):
        own = takes_parts(task)
        return task.inspect(records.in_memory()) if own is None else _inspected(task, table_parts(own, records))
    if not isinstance(records, LazyExamples):
        return task.inspect(records)
    return _inspected(task, _made(task, records))


def _made(task: Task, records: LazyExamples) -> Iterator[Examples]:
    for part in records.parts():
        Making(task)(part)
        yield part


def _inspected(task: Task, parts: Iterable[Records]) -> tuple[InputUse, ...]:
    found: dict[str, InputUse] = {}
    for part in parts:
        for use in task.inspect(part):
            found[use.name] = _added(found[use.name], use) if use.name in found else use
    return tuple(found.values())


def _added(one: InputUse, other: InputUse) -> InputUse:
    return InputUse(one.name, one.values + other.values, one.missing + other.missing, one.clipped + other.clipped)


def _of_labels_alone(task: Task) -> bool:
    """Has the task `targets` of its own, as new as its `dataset`?"""
    newest = next(kind for kind in type(task).__mro__ if not {"targets", "dataset"}.isdisjoint(vars(kind)))
    return newest is not Task and "targets" in vars(newest)


def _targets_in_parts(task: Task, records: LazyExamples) -> Tensor:
    """Of a task that makes targets of whole records only: each is read once, and its inputs are dropped."""
    found: list[Tensor] = []
    for part in records.parts():
        made = task.dataset(part)
        if made.patients != part.patients:
            raise TaskError(
                f"task {type(task).__name__} does not make one input of every record, in their order: leave records "
                "out of the data instead"
            )
        found.append(made.targets)
    return torch.cat(found)
