"""The records of each client: indices into one data set that lies in memory once, for any number of clients."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from private_learning.records import DataError
from private_learning.tasks import TaskDataset
from private_learning.tasks.inputs import joined, parts, take_rows

Rows = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Population:
    """The clients of a study, in order of their names, as the coordinator adds their updates up.

    dataset  every record once
    rows     of each client: (n_i,) rows of `dataset`, in the client's own order. Two clients may have the same record
    names    of the clients, ascending

    Raises DataError: a client without records or with one patient twice, a row that is not there, names that are not
    ascending.
    """

    dataset: TaskDataset
    rows: tuple[Rows, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.names) or list(self.names) != sorted(set(self.names)):
            raise DataError("every client has a name of its own, and clients are in order of their names")
        empty = [name for name, rows in zip(self.names, self.rows, strict=True) if not len(rows)]
        if empty:
            raise DataError(f"{empty[0]} has no records: ask for fewer clients, or split the records otherwise")
        has_repeated_patients = len(set(self.dataset.patients)) < len(self.dataset)
        for name, rows in zip(self.names, self.rows, strict=True):
            self._require_distinct_patients(name, rows, has_repeated_patients=has_repeated_patients)

    def _require_distinct_patients(self, name: str, rows: Rows, *, has_repeated_patients: bool) -> None:
        if int(rows.min()) < 0 or int(rows.max()) >= len(self.dataset):
            raise DataError(f"{name} has a row that the data set has not")
        # The clip bounds one record: with two a patient has twice the influence that is charged.
        patients: Any = [self.dataset.patients[int(row)] for row in rows] if has_repeated_patients else rows
        if len(np.unique(patients)) < len(rows):
            raise DataError(f"{name} has two records of one patient: keep one, or set rows_per_patient")

    @classmethod
    def split(cls, dataset: TaskDataset, rows: Sequence[Rows]) -> Self:
        """Clients called client-0, client-1, …, with as many digits as the last one needs."""
        digits = len(str(len(rows) - 1))
        return cls(dataset, tuple(rows), tuple(f"client-{place:0{digits}d}" for place in range(len(rows))))

    @classmethod
    def of(cls, clients: dict[str, TaskDataset]) -> Self:
        """Join clients with a data set of their own each. A patient with the same identifier in two counts as two
        records.

        Raises:
            DataError: no client, or data sets that do not fit together.
        """
        names = sorted(clients)
        sets = [clients[name] for name in names]
        rows: list[Rows] = []
        for part in sets:
            start = len(rows[-1]) + int(rows[-1][0]) if rows else 0
            rows.append(np.arange(start, start + len(part), dtype=np.int64))
        return cls(sets[0] if len(sets) == 1 else _joined(names, sets), tuple(rows), tuple(names))

    def __len__(self) -> int:
        return len(self.names)

    def records_of(self, place: int) -> TaskDataset:
        """One client's records."""
        rows, whole = self.rows[place], self.dataset
        index = torch.as_tensor(rows)
        patients = tuple(whole.patients[int(row)] for row in rows)
        return TaskDataset(take_rows(whole.inputs, index), whole.targets[index], patients, grouped=whole.grouped)

    def everybody(self) -> TaskDataset:
        """The records of all clients together, each once."""
        rows = np.unique(np.concatenate(self.rows))
        whole, index = self.dataset, torch.as_tensor(rows)
        # Who is who matters to nobody here.
        patients = tuple(str(row) for row in range(len(rows)))
        return TaskDataset(take_rows(whole.inputs, index), whole.targets[index], patients, grouped=whole.grouped)

    def digest(self) -> str:
        """SHA-256 (hex) of every record and who has it."""
        digest = hashlib.sha256(json.dumps([self.names, self.dataset.patients]).encode())
        for tensor in (*parts(self.dataset.inputs), self.dataset.targets):
            digest.update(np.ascontiguousarray(tensor.numpy()).data)
        for rows in self.rows:
            digest.update(np.array([len(rows)]).data)
            digest.update(np.ascontiguousarray(rows).data)
        return digest.hexdigest()


def _joined(names: Sequence[str], datasets: Sequence[TaskDataset]) -> TaskDataset:
    shapes = {(tuple(part.inputs.shape[1:]), tuple(part.targets.shape[1:]), part.grouped) for part in datasets}
    if len(shapes) != 1:
        raise DataError("the clients' records have different shapes: one client has several rows of a patient")
    return TaskDataset(
        joined([part.inputs for part in datasets]),
        torch.cat([part.targets for part in datasets]),
        tuple(f"{name}/{patient}" for name, part in zip(names, datasets, strict=True) for patient in part.patients),
        grouped=datasets[0].grouped,
    )
