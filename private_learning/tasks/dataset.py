"""Records as tensors: rows as a task made them, and one record per patient as training takes them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from private_learning.records import DataError
from private_learning.tasks.inputs import Inputs, in_memory, take_rows
from study_protocol.cells.identity import patient_identity

# The target of whole numbers in a row that a patient with fewer rows lacks. No class has this number. In a
# target of floats it is NaN.
ABSENT = -1

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class TaskDataset(Dataset[tuple[Tensor, Tensor, str]]):
    """Rows that a task made of the records. `by_patient` makes the patients out of them that training takes.

    inputs: (n, ...) float32, finite. Rows that are read on demand are found finite at reading.
    patients: n identifiers, which stay in the hospital.
    targets: (n, ...) as the task's loss takes them: (n,) int64 classes, (n, height, width) int64 masks, (n,) float32
    numbers, (n, k) float32 for several at once. One of several may be NaN, which the loss leaves out, but not all of a
    row.
    grouped: inputs are (n, rows, ...) and targets (n, rows, ...), with ABSENT or NaN in a row that a patient lacks. The
    study sets how many rows there are.
    computed: a frozen model made the inputs of records. They are NaN where it failed, which counts as zero in training.
    """

    inputs: Inputs
    targets: Tensor
    patients: tuple[str, ...]
    grouped: bool = False
    computed: bool = False

    def __post_init__(self) -> None:
        if not len(self.inputs) == len(self.targets) == len(self.patients) or not self.patients:
            raise DataError("inputs, targets and patients have one length, and at least one record")
        if isinstance(self.inputs, Tensor) and not self.computed and not torch.isfinite(self.inputs).all():
            raise DataError("inputs: NaN or an infinity after preprocessing")
        self._require_targets()

    def __len__(self) -> int:
        return len(self.patients)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, str]:
        return self.inputs[index], self.targets[index], self.patients[index]

    def _require_targets(self) -> None:
        if not self.targets.is_floating_point():
            return
        if torch.isinf(self.targets).any():
            raise DataError("targets: an infinity")
        # A patient whose rows are there has its first one.
        row_targets = self.targets[:, 0] if self.grouped else self.targets
        empty = int((~present(row_targets, 1)).sum())
        if empty:
            raise DataError(f"targets: {empty} of {len(row_targets)} records have none: leave these records out")

    @property
    def row_targets(self) -> Tensor:
        """Return (rows, ...) targets of single rows: of every patient those that it has."""
        return self.targets[present(self.targets, 2)] if self.grouped else self.targets

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of all values in memory, and of the places of inputs that are read on demand."""
        hashed = hashlib.sha256(json.dumps([self.patients, self.grouped, list(self.inputs.shape)]).encode())
        for part in (self.targets, self.inputs if isinstance(self.inputs, Tensor) else self.inputs.places):
            hashed.update(np.ascontiguousarray(part.cpu().numpy()).data)
        return hashed.hexdigest()

    @property
    def longest(self) -> int:
        """Return the most rows that one patient has, of those that are used."""
        return int(present(self.targets, 2).sum(1).max()) if self.grouped else 1

    def without(self, excluded: Sequence[str]) -> TaskDataset:
        """Return the records of the patients who are not in `excluded`."""
        identities = set(map(patient_identity, excluded))
        return self._take([i for i, patient in enumerate(self.patients) if patient not in identities])

    def require_one_record_per_patient(self) -> None:
        """Refuse a second record of a patient.

        Raises DataError: the clip bounds one record, and with two a patient has twice the influence that is charged.
        """
        rows = Counter(self.patients)
        counts = [count for count in rows.values() if count > 1]
        if counts:
            raise DataError(
                f"{len(self.patients) - len(rows)} records belong to a patient who has another: {len(counts)} of "
                f"{len(rows)} patients have up to {max(counts)} rows. The guarantee is about one patient: keep one "
                "row of each (from Python: one_per_patient), or let the study set rows_per_patient, which takes "
                "several rows as one record"
            )

    def by_patient(self, max_rows: int) -> TaskDataset:
        """Return one record per patient, of its first `max_rows` rows. The log says how many patients have more.

        The shape follows from `max_rows` alone, and not from how many rows a patient has. With 1 these are the rows
        themselves. With more every record has exactly so many rows, of which some are marked as absent.

        Raises:
            DataError: `max_rows` is 1 and a patient has two rows. Or rows to be grouped have targets below 0
            throughout,
                which would pass for absent rows.
        """
        if max_rows < 1:
            raise ValueError(f"most must be at least 1, got {max_rows}")
        if max_rows == 1:
            self.require_one_record_per_patient()
        rows: dict[str, list[int]] = {}
        for row, patient in enumerate(self.patients):
            rows.setdefault(patient, []).append(row)
        if self.grouped or max_rows == 1:
            return self
        if not present(self.targets, 1).all():
            raise DataError(
                f"several rows of one patient: targets of whole numbers must not be {ABSENT}, which stands for no row"
            )
        cut = sum(len(patient_rows) > max_rows for patient_rows in rows.values())
        if cut:
            _LOG.warning("%d patients have more than %d rows: the first %d of each are used", cut, max_rows, max_rows)
        return self._grouped({patient: patient_rows[:max_rows] for patient, patient_rows in rows.items()}, max_rows)

    def _grouped(self, rows: dict[str, list[int]], max_rows: int) -> TaskDataset:
        # A row that stands in for a missing one repeats the patient's first, so that no computation runs on empty data.
        places = torch.tensor(
            [patient_rows + patient_rows[:1] * (max_rows - len(patient_rows)) for patient_rows in rows.values()]
        )
        real = torch.tensor([[k < len(patient_rows) for k in range(max_rows)] for patient_rows in rows.values()])
        mark = torch.nan if self.targets.is_floating_point() else ABSENT
        targets = torch.where(over(real, self.targets.ndim + 1), self.targets[places], mark)
        return TaskDataset(take_rows(self.inputs, places), targets, tuple(rows), grouped=True, computed=self.computed)

    def _take(self, keep: Sequence[int]) -> TaskDataset:
        patients = tuple(self.patients[i] for i in keep)
        return TaskDataset(take_rows(self.inputs, keep), self.targets[keep], patients, self.grouped, self.computed)

    def in_memory(self) -> TaskDataset:
        """Return the same data set with all inputs as one tensor of any size."""
        if isinstance(self.inputs, Tensor):
            return self
        return TaskDataset(in_memory(self.inputs), self.targets, self.patients, self.grouped, self.computed)


def present(targets: Tensor, axes: int) -> Tensor:
    """Return (...) booleans over the first `axes` axes of `targets`: not ABSENT, or NaN, throughout."""
    is_absent = torch.isnan(targets) if targets.is_floating_point() else targets == ABSENT
    return ~(is_absent if targets.ndim == axes else is_absent.flatten(axes).all(-1))


def over(values: Tensor, axes: int) -> Tensor:
    """Return the same values with axes of length 1 behind, `axes` in all."""
    return values.reshape(*values.shape, *(1,) * (axes - values.ndim))
