"""Records as tensors: rows as a task made them, and one record per patient as training takes them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from client_sdk.data import DataError
from client_sdk.tasks.inputs import Inputs, in_memory, taken

# A target that stands where a patient has fewer rows than the others; no class has this number.
ABSENT = -1

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskDataset(Dataset[tuple[Tensor, Tensor, str]]):
    """Rows that a task made of the records; `by_patient` makes the patients out of them that training takes.

    inputs: (n, ...) float32, finite; or rows that are read on demand, and found finite then. targets: (n,) int64.
    patients: n identifiers, which stay in the hospital.
    grouped: inputs are (n, rows, ...) and targets (n, rows), ABSENT where a patient has fewer rows.
    """

    inputs: Inputs
    targets: Tensor
    patients: tuple[str, ...]
    grouped: bool = False

    def __post_init__(self) -> None:
        if not len(self.inputs) == len(self.targets) == len(self.patients) or not self.patients:
            raise DataError("inputs, targets and patients have one length, and at least one record")
        if isinstance(self.inputs, Tensor) and not torch.isfinite(self.inputs).all():
            raise DataError("inputs: NaN or an infinity after preprocessing")

    def __len__(self) -> int:
        return len(self.patients)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, str]:
        return self.inputs[index], self.targets[index], self.patients[index]

    def without(self, excluded: Sequence[str]) -> TaskDataset:
        """The records of everybody who is not in `excluded`."""
        gone = set(excluded)
        return self._take([i for i, patient in enumerate(self.patients) if patient not in gone])

    def require_one_record_per_patient(self) -> None:
        """Raises DataError: the clip bounds one record; with two a patient has twice the influence that is charged."""
        rows = Counter(self.patients)
        several = [count for count in rows.values() if count > 1]
        if several:
            raise DataError(
                f"{len(self.patients) - len(rows)} records belong to a patient who has another: {len(several)} of "
                f"{len(rows)} patients have up to {max(several)} rows. The guarantee is about one patient: keep one "
                "row of each (from Python: one_per_patient), or let the study set rows_per_patient, which takes "
                "several rows as one record"
            )

    def by_patient(self, most: int) -> TaskDataset:
        """One record per patient, of at most its first `most` rows; the log says how many patients have more.

        Where everybody has one row, these are the rows themselves.

        Raises:
            DataError: `most` is 1 and a patient has two rows, or rows to be grouped have targets that are not classes.
        """
        if most < 1:
            raise ValueError(f"most must be at least 1, got {most}")
        if most == 1:
            self.require_one_record_per_patient()
        rows: dict[str, list[int]] = {}
        for row, patient in enumerate(self.patients):
            rows.setdefault(patient, []).append(row)
        if self.grouped or len(rows) == len(self.patients):
            return self
        if self.targets.is_floating_point() or self.targets.ndim != 1 or bool((self.targets < 0).any()):
            raise DataError("several rows of one patient: targets must be classes, whole numbers from 0")
        cut = sum(len(own) > most for own in rows.values())
        if cut:
            _LOG.warning("%d patients have more than %d rows; the first %d of each are used", cut, most, most)
        return self._grouped({patient: own[:most] for patient, own in rows.items()})

    def _grouped(self, rows: dict[str, list[int]]) -> TaskDataset:
        longest = max(len(own) for own in rows.values())
        # A row that stands in for a missing one repeats the patient's first, so that nothing is computed of empty air.
        places = torch.tensor([own + own[:1] * (longest - len(own)) for own in rows.values()])
        present = torch.tensor([[k < len(own) for k in range(longest)] for own in rows.values()])
        targets = torch.where(present, self.targets[places], ABSENT)
        return TaskDataset(taken(self.inputs, places), targets, tuple(rows), grouped=True)

    def _take(self, keep: Sequence[int]) -> TaskDataset:
        patients = tuple(self.patients[i] for i in keep)
        return TaskDataset(taken(self.inputs, keep), self.targets[keep], patients, grouped=self.grouped)

    def in_memory(self) -> TaskDataset:
        """The same with all inputs as one tensor, however large."""
        if isinstance(self.inputs, Tensor):
            return self
        return TaskDataset(in_memory(self.inputs), self.targets, self.patients, grouped=self.grouped)
