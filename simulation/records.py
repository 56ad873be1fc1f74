"""From files to a population and its test records: read once, then held out and dealt out anew under every seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from client_sdk.guard.split import PatientSplit
from client_sdk.study.preparation import earlier_records
from private_learning.records import DataError, Records, Table, load
from private_learning.tasks import Task, TaskDataset, TaskError, dataset_of
from private_learning.tasks.inputs import joined
from simulation import splits
from simulation.population import Population
from study_protocol.study.settings import StudySettings

Rows = NDArray[np.int64]
# Streams of one seed that must not be one another's.
_TEST, _CLIENTS = 1, 2
_WAYS = "iid, labels:K (K shards a client), dirichlet:ALPHA, or column:NAME (one client for each value)"


@dataclass(frozen=True)
class HowSplit:
    """How one file's records are dealt out. value: K, alpha, or the name of a column."""

    way: str
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ConfigurationError: the text names no way."""
        way, _, value = text.partition(":")
        good = {"iid": value == "", "labels": value.isdecimal() and int(value) > 0, "dirichlet": _positive(value)}
        if not good.get(way, way == "column" and value != ""):
            raise ConfigurationError(f"--split {text}: say {_WAYS}")
        return cls(way, value)


@dataclass(frozen=True)
class Source:
    """The records of a simulation.

    clients  the name of each file's client, where every file is one. None: one file, dealt out
    test     records of their own. None: a share of the patients is held out
    """

    files: tuple[Records, ...]
    clients: tuple[str, ...] | None
    test: Records | None

    @classmethod
    def read(cls, files: Sequence[Path], test: Path | None, reader: Callable[[Path], Records] = load) -> Self:
        """reader: of one file.

        Raises:
            DataError: a file cannot be read, or two files make one client's name.
        """

        def read(path: Path) -> Records:
            try:
                return reader(path)
            except DataError as error:
                raise DataError(str(error) if str(path) in str(error) else f"{path}: {error}") from error

        tables = tuple(map(read, files))
        names = None
        if len(files) > 1:
            names = tuple(splits.client_name(path.name.removesuffix(".gz").rpartition(".")[0]) for path in files)
            if len(set(names)) < len(names):
                raise DataError(f"two files make one client's name: {', '.join(sorted(names))}. Rename one")
        return cls(tables, names, None if test is None else read(test))


@dataclass(frozen=True)
class Dealt:
    """Records under one seed: those of each client, and the test records for every release, or None."""

    population: Population
    test: TaskDataset | None


@dataclass(frozen=True)
class Dealer:
    """Deals the records of a source out, under any seed.

    how, clients  of one file. Where every file is a client, iid and None or as many
    test_share    of every file's patients, held out for the test where the source has no test records
    """

    source: Source
    split: HowSplit
    clients: int | None
    test_share: float

    def __post_init__(self) -> None:
        # Written so that NaN does not pass.
        if not 0 <= self.test_share < 1:
            raise ConfigurationError(f"--test-share must be at least 0 and below 1, not {self.test_share:g}")
        names = self.source.clients
        if names is not None and (self.clients not in (None, len(names)) or self.split.way != "iid"):
            raise ConfigurationError("every file is one client: leave --clients and --split out, or give one file")
        if names is None and self.clients is None and self.split.way != "column":
            raise ConfigurationError(
                "say how many clients share the file (--clients), or which column names them (--split column:NAME)"
            )

    def check(self, task: Task, settings: StudySettings) -> None:
        """Whole files, before some of their rows are held out: counts and lines are then the file's own.

        Raises:
            DataError: records that the task cannot take. The text names the file where there are several.
        """
        source, each = self.source, settings.training.rows_per_patient
        named_files = list(zip(source.clients or ("",), source.files, strict=True))
        if source.test is not None:
            named_files.append(("test records", source.test))
        for name, records in named_files:
            try:
                dataset = dataset_of(task, records)
                if records is not source.test:
                    dataset.by_patient(each)
            except (DataError, TaskError) as error:
                raise DataError(f"{name}: {error}" if name else str(error)) from error

    def deal(self, task: Task, settings: StudySettings, seed: int) -> Dealt:
        """The population and test records of one seed.

        Raises:
            DataError, TaskError: records that the task cannot take, or too few of them.
            ConfigurationError: the split does not go with the records.
        """
        source, draw = self.source, np.random.default_rng([seed, _TEST])
        tests: list[TaskDataset] = [] if source.test is None else [dataset_of(task, source.test)]
        train_records: list[Records] = []
        for records in source.files:
            train = records
            if source.test is None and self.test_share > 0:
                train, test_records = _held_out(records, self.test_share, draw)
                tests.append(dataset_of(task, test_records))
            train_records.append(_trained(train, settings, seed))
        each = settings.training.rows_per_patient
        patients = [dataset_of(task, client_records).by_patient(each) for client_records in train_records]
        if source.clients is not None:
            return Dealt(Population.of(dict(zip(source.clients, patients, strict=True))), _joined(tests))
        dealt = np.random.default_rng([seed, _CLIENTS])
        return Dealt(self._split(train_records[0], patients[0], dealt), _joined(tests))

    def _split(self, records: Records, dataset: TaskDataset, draw: np.random.Generator) -> Population:
        split_kind, clients = self.split, self.clients
        if split_kind.way == "column" or clients is None:
            rows, names = splits.by_value(_values(records, dataset, split_kind.value))
            if clients not in (None, len(names)):
                raise ConfigurationError(
                    f"column {split_kind.value} has {len(names)} values, and --clients says {clients}"
                )
            return Population(dataset, tuple(rows), tuple(names))
        if split_kind.way == "iid":
            return Population.split(dataset, splits.iid(len(dataset), clients, draw))
        labels = dataset.targets.numpy()
        if labels.dtype.kind not in "iu" or labels.ndim > 1 + dataset.grouped:
            raise ConfigurationError(f"--split {split_kind.way}: targets are not classes, take iid or column")
        # A patient of several rows counts by the first.
        labels = labels[:, 0] if labels.ndim > 1 else labels
        if split_kind.way == "labels":
            return Population.split(dataset, splits.shards(labels, clients, int(split_kind.value), draw))
        return Population.split(dataset, splits.dirichlet(labels, clients, float(split_kind.value), draw))


def _values(records: Records, dataset: TaskDataset, column: str) -> list[Any]:
    """The value of each of the data set's patients, from the patient's first row."""
    if not isinstance(records, Table) or column not in records.columns:
        raise ConfigurationError(f"--split column:{column}: the records have no such column")
    first: dict[str, Any] = {}
    for patient, value in zip(records.patients, records.columns[column].tolist(), strict=True):
        first.setdefault(patient, value)
    return [first[patient] for patient in dataset.patients]


def _held_out(records: Records, share: float, draw: np.random.Generator) -> tuple[Records, Records]:
    """(the others, those of a random share of the patients)."""
    patients = list(dict.fromkeys(records.patients))
    count = round(share * len(patients))
    if not 0 < count < len(patients):
        raise DataError(f"of {len(patients)} patients, a share of {share:g} leaves none for training or for the test")
    order: list[int] = draw.permutation(len(patients)).tolist()
    test_patients = {patients[place] for place in order[:count]}
    aside = np.array([patient in test_patients for patient in records.patients])
    return records.take(np.flatnonzero(~aside)), records.take(np.flatnonzero(aside))


def _trained(records: Records, settings: StudySettings, seed: int) -> Records:
    """Without those whom the study sets aside for evaluation."""
    records = earlier_records(records, settings)
    if settings.evaluation is None:
        return records
    secret = hashlib.sha256(f"wardround simulated split {seed}".encode()).digest()
    aside = PatientSplit(secret, settings.evaluation.share).set_aside(records.patients)
    if aside.all():
        raise DataError("evaluation.share sets every patient of a file aside: none is left for training")
    return records.take(np.flatnonzero(~aside))


def _joined(tests: Sequence[TaskDataset]) -> TaskDataset | None:
    if not tests:
        return None
    # Rows: a test asks about each by itself.
    patients = tuple(f"{place}/{row}" for place, test in enumerate(tests) for row in range(len(test)))
    return TaskDataset(joined([t.inputs for t in tests]), torch.cat([t.targets for t in tests]), patients)


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False
