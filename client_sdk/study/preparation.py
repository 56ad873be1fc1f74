"""The records of a hospital and the task of a study become a training: `join` begins with it."""

from __future__ import annotations

import inspect
import logging
import math
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError, Refused, WardroundError
from client_sdk.guard.exclusion import places_of
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.rules import require_program_allowed
from client_sdk.guard.split import PatientSplit
from client_sdk.study.cell_counts import cells_of_task
from client_sdk.study.delivery import Capabilities
from client_sdk.study.encoding_hints import EncodingHint, hints_of
from client_sdk.study.evaluated import EvaluatedPatients, require_form
from client_sdk.study.feature_cache import FeatureCache
from client_sdk.study.hopeless import remarks
from client_sdk.study.lacking import LackingColumn, lacking_columns
from client_sdk.study.patients import AskedPatients
from client_sdk.study.remaining import remaining
from private_learning.gradients.choice import GradientChoice
from private_learning.records import DataError, Records, Table, records_of
from private_learning.tasks import Task, TaskDataset, TaskError, dataset_of, load, of_study
from private_learning.tasks.backbone_file import BackboneFile
from private_learning.tasks.reading import inspected, warnings_of
from private_learning.tasks.task import InputUse
from private_learning.training import LocalTraining
from private_learning.training.devices import devices_of
from private_learning.training.features import Features, NoFeatures, reading
from study_protocol.cells.counting import CellCounts
from study_protocol.queries.first_record import days_since_epoch, first_days
from study_protocol.randomness.source import Randomness, SecureRandomness
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.monitoring import MonitoringSettings
from study_protocol.study.settings import StudySettings
from study_protocol.study.training import Training

_LOG = logging.getLogger(__name__)
_TRIAL_RECORDS = 4
T = TypeVar("T")


def _prepared(
    task: str | Task | None,
    records: Records,
    settings: StudySettings,
    randomness: Randomness | None,
    device: str,
    checkpoint_seconds: float,
    party: str,
    split: PatientSplit | None = None,
    bfloat16: bool = False,
    backbone: BackboneFile | None = None,
    cache: FeatureCache | None = None,
    choice: GradientChoice | None = None,
) -> LocalTraining:
    """Return the training of records whose patients may all be read. Arguments are as of `able`."""
    prepared_task = _task(task, settings.training, backbone)
    trained = records if split is None else _of_the_split(records, ~split.set_aside(records.patients))
    if trained is None:
        raise DataError("the split sets every patient of these records aside: none is left for training")
    dataset = _patients(prepared_task, trained, settings.training)
    coins = randomness or SecureRandomness()
    prepared_task, dataset = _from_task(
        prepared_task,
        "compute features",
        lambda: _on_features(prepared_task, dataset, settings.training, device, cache),
    )
    training = LocalTraining(prepared_task, dataset, settings, coins, device, checkpoint_seconds, party, bfloat16)
    _from_task(prepared_task, "make its model", lambda: training.spec)
    training.require_trainable(choice)
    slow = _from_task(prepared_task, "compute the first gradients", training.slow_path)
    if slow is not None:
        _LOG.warning("%s", slow)
    return training


def able(
    task: str | Task | None,
    data: Any,
    rules: SitePolicy,
    settings: AnySettings,
    randomness: Randomness | None,
    device: str,
    checkpoint_seconds: float,
    party: str,
    data_version: str,
    split: PatientSplit | None = None,
    *,
    bfloat16: bool = False,
    backbone: BackboneFile | None = None,
    cache: FeatureCache | None = None,
    choice: GradientChoice | None = None,
) -> Capabilities:
    """Return what this hospital can do in the study, found possible before any round is paid for.

    split     the patients that it sets aside for evaluation are not trained on. Needed where the study evaluates
    backbone  the file that the study names: weights, or a ProgramFile
    cache     where features of the records are kept between runs. None: they are computed anew in each
    choice    how gradients were found when the study began. None: it begins now

    Raises:
        PolicyRefused: the study runs a program that the policy does not list.
        ConfigurationError, DataError, TaskError: the task, the records, the backbone or the policy's list do not fit.
    """
    require_program_allowed(rules, settings)
    coins, records = randomness or SecureRandomness(), remaining(records_of(data), rules).records
    training = patients = evaluated = later = None
    if isinstance(settings, StudySettings):
        earlier = earlier_records(records, settings)
        training = _prepared(
            *(task, earlier, settings, coins, device, checkpoint_seconds, party, split, bfloat16, backbone, cache),
            choice,
        )
        if split is not None:
            evaluated = _evaluated(training, records, settings, split)
        if settings.monitoring is not None:
            later = _later(training, records, settings.monitoring)
    # Images have no columns to be asked about. A model is evaluated on them nevertheless.
    if settings.statistics is not None and (isinstance(records, Table) or evaluated is None):
        patients = AskedPatients.of_remaining(records)
    return Capabilities(settings, coins, training, patients, data_version, evaluated, later)


def earlier_records(records: Records, settings: StudySettings) -> Records:
    """Return the records without patients whose first record is on or after the first day of monitoring.

    Raises:
        ConfigurationError: the records have no columns, or name no patients.
        DataError: the table has no such column, or nobody is left.
    """
    monitoring = settings.monitoring
    if monitoring is None:
        return records
    if not isinstance(records, Table) or not records.named:
        raise ConfigurationError(
            "the study monitors patients by the date of their first record: it needs a table with a column of dates, "
            "and one that names the patient (--patient-column)"
        )
    days = first_days(records.columns, monitoring.column, records.patients)
    # Without a date a patient is trained on as in other studies, and is in no window.
    earlier = ~(days >= days_since_epoch(monitoring.first_day))
    if not earlier.any():
        raise DataError(
            f"every patient of these records is first seen on or after {monitoring.first_day}: none is left"
        )
    return records.take(np.flatnonzero(earlier))


def choice_of(opened: Mapping[str, Any] | None) -> GradientChoice | None:
    """Return how gradients were found when a study was opened here, or None if it was not, or by an earlier version."""
    choice = None if opened is None else opened.get("gradients")
    return None if choice is None else GradientChoice.from_dict(choice)


def _later(training: LocalTraining, records: Records, monitoring: MonitoringSettings) -> EvaluatedPatients:
    """Return everybody, for questions about a window. Raises as `_evaluated`."""
    try:
        require_form(training.task, monitoring.question.of(1))
    except Refused as refused:
        raise ConfigurationError(f"monitoring.question: {refused.detail}") from refused
    _require_one_input_a_row(training, records)
    return EvaluatedPatients(training, records)


def _evaluated(
    training: LocalTraining, records: Records, settings: StudySettings, split: PatientSplit
) -> EvaluatedPatients:
    """Raises ConfigurationError: the study asks by itself what its model does not predict."""
    question = None if settings.evaluation is None else settings.evaluation.question
    if question is not None:
        try:
            require_form(training.task, question)
        except Refused as refused:
            raise ConfigurationError(f"evaluation.question: {refused.detail}") from refused
    if not records.named:
        _LOG.warning(
            "the records name no patients, so that each row's place decides whether it is trained on or evaluated: "
            "keep the order of the rows for as long as studies use them, and add new ones at the end"
        )
    patients = EvaluatedPatients(training, _of_the_split(records, split.set_aside(records.patients)))
    if patients.records is not None:
        _require_one_input_a_row(training, records)
    return patients


def _require_one_input_a_row(training: LocalTraining, records: Records) -> None:
    # What the task says of a row that it cannot read is found here, as for training.
    reader = reading(training.task)
    dataset = _from_task(reader, "read the records", lambda: dataset_of(reader, records))
    # A row that is left out would give every later patient the prediction of somebody else.
    if dataset.patients != tuple(records.patients):
        raise TaskError(
            f"task {type(training.task).__name__} does not make one input of every row, in their order: its models "
            "cannot be evaluated here. Leave rows out of the records instead, or ask its author"
        )


def _of_the_split(records: Records, keep: NDArray[np.bool_]) -> Records | None:
    """Return the rows of one side, or None if it has none."""
    return records.take(np.flatnonzero(keep)) if keep.any() else None


@dataclass(frozen=True, repr=False)
class DataCheck:
    """The reading of a hospital's records by a study, for the hospital's own eyes.

    rows       of the records, those of patients who are left out included
    excluded   patients who are left out by the policy's list
    unmatched  how many entries of that list match no patient, and where these stand. Empty: all match one
    patients   each as one record, whichever side of a split they would be on
    set_aside  share of them who would be evaluated and never trained on, 0 where the study sets no patients aside
    longest    the most rows that one of them has, of those that are used
    labels     class, by the word of label-values or its number -> rows of it. Empty where targets are not classes
    inputs     what became of each input, over the rows that are used
    unused     columns that the study does not name
    parameters numbers of the model that are trained
    counts     cells of the declared columns of a table
    hopeless   why a study cannot learn from these records, one sentence each
    without_gradient  of the first records, how many have no finite gradient: they would count as zero
    hints      of how its columns could be encoded better
    lacking    columns that the study lets a site lack, and that these records lack
    """

    rows: int
    excluded: int
    unmatched: str
    patients: int
    set_aside: float
    longest: int
    labels: dict[str, int]
    inputs: tuple[InputUse, ...]
    unused: tuple[str, ...]
    parameters: int
    counts: tuple[CellCounts, ...] = ()
    without_gradient: int = 0
    hopeless: tuple[str, ...] = ()
    hints: tuple[EncodingHint, ...] = ()
    lacking: tuple[LackingColumn, ...] = ()


def check_data(
    data: Any, rules: SitePolicy, settings: StudySettings, *, device: str = "auto", backbone: BackboneFile | None = None
) -> DataCheck:
    """Go as far as `join` goes before it asks anybody: read, leave out, encode, make the model, try a few gradients.

    backbone  the file that the study names: weights, or a ProgramFile

    Raises:
        PolicyRefused: the study runs a program that the policy does not list.
        ConfigurationError, DataError, TaskError: what would end `join`.
    """
    devices_of(device)
    require_program_allowed(rules, settings)
    records = records_of(data)
    remaining_data = remaining(records, rules)
    earlier = earlier_records(remaining_data.records, settings)
    training = _prepared(None, earlier, settings, None, device, 60.0, "check", backbone=backbone)
    failed = _from_task(training.task, "compute the first gradients", lambda: training.try_gradients(_TRIAL_RECORDS))
    targets = training.dataset.row_targets
    labels = _from_task(training.task, "count its targets", lambda: training.task.target_counts(targets))
    inputs = _from_task(training.task, "count its inputs", lambda: inspected(training.task, remaining_data.records))
    label_columns = {settings.training.task_parameters.get("label"), *training.task.target_columns}
    used_columns = label_columns | {use.name for use in inputs}
    # A task that says nothing of its inputs may use any column.
    columns: Iterable[str] = records.columns if isinstance(records, Table) and inputs else ()
    return DataCheck(
        rows=len(records),
        excluded=remaining_data.excluded,
        unmatched=f"{len(remaining_data.unmatched)} of {len(rules.exclusions)}: {places_of(remaining_data.unmatched)}"
        if remaining_data.unmatched
        else "",
        patients=len(training.dataset),
        set_aside=0.0 if settings.evaluation is None else settings.evaluation.share,
        longest=training.dataset.longest,
        labels=labels,
        inputs=inputs,
        unused=tuple(name for name in columns if name not in used_columns),
        parameters=sum(math.prod(shape) for shape, _ in training.spec.values()),
        counts=cells_of_task(training.task, remaining_data.records)
        if isinstance(remaining_data.records, Table)
        else (),
        without_gradient=failed,
        hopeless=tuple(remarks_of(training)),
        hints=hints_of(training.task, remaining_data.records),
        lacking=lacking_columns(training.task, remaining_data.records),
    )


def remarks_of(training: LocalTraining) -> list[str]:
    """Return why a study cannot learn from these records. Empty: it may."""
    targets = training.dataset.row_targets
    counts = _from_task(training.task, "count its targets", lambda: training.task.target_counts(targets))
    # Beside whole classes, only labels and events are what a model learns: others are counts of what is not known.
    needed_columns = (*getattr(training.task, "labels", ()), "event")
    labels = counts if targets.ndim == 1 else {name: counts[name] for name in needed_columns if name in counts}
    parameters = sum(math.prod(shape) for shape, _ in training.spec.values())
    return remarks(training.settings, len(training.dataset), labels, len(targets), parameters)


def _task(requested: str | Task | None, training: Training, backbone: BackboneFile | None) -> Task:
    if requested is not None and not isinstance(requested, Task) and requested != training.task:
        raise ConfigurationError(f"the study trains task {training.task!r}, not {requested!r}")
    chosen_task = requested if isinstance(requested, Task) else load(training.task, training.task_parameters)
    return of_study(training, backbone, chosen_task)


def _on_features(
    task: Task, dataset: TaskDataset, training: Training, device: str, cache: FeatureCache | None
) -> tuple[Task, TaskDataset]:
    """Return the same task on the features of the records where only the head is trained. They are computed here."""
    features = Features.of(task, devices_of(device)[0])
    if features is None:
        return task, dataset
    try:
        features.require(dataset)
        feature_dataset = features.of_dataset(dataset) if cache is None else cache.features(features, dataset, training)
    except NoFeatures as reason:
        _LOG.warning("every step computes the whole model, not the head on stored features alone: %s", reason)
        return task, dataset
    return features.task(), feature_dataset


def _patients(task: Task, records: Records, training: Training) -> TaskDataset:
    """One record per patient."""
    if not records.named and training.rows_per_patient > 1:
        # Its patients have several rows: counted as patients of their own, they would cost more than is charged.
        raise ConfigurationError(
            f"the study takes up to {training.rows_per_patient} rows of a patient as one record, but these records "
            "name no patients: say which column does (--patient-column, from Python patient_column)"
        )
    if not records.named:
        _LOG.warning(
            "the records name no patients: every row counts as a patient of its own. If a patient can have several "
            "rows, say which column names the patient (--patient-column), or ε is too small for that patient"
        )
    dataset = _from_task(task, "read the records", lambda: dataset_of(task, records))
    for warning in _from_task(task, "look at its inputs", lambda: warnings_of(task, records)):
        _LOG.warning("%s", warning)
    return dataset.by_patient(training.rows_per_patient)


def _from_task(task: Task, action: str, call: Callable[[], T]) -> T:
    """Return what a task's own code gives.

    Raises:
        TaskError: it failed. Its place is named and its words are not: they may quote a record.
    """
    try:
        return call()
    except (DataError, TaskError, WardroundError):
        raise
    # Not chained: its text may quote a record.
    except Exception as error:  # noqa: BLE001
        task_file = Path(inspect.getfile(type(task)))
        frames = traceback.extract_tb(error.__traceback__)
        frame = next(
            (call_frame for call_frame in reversed(frames) if Path(call_frame.filename) == task_file), frames[-1]
        )
        raise TaskError(
            f"task {type(task).__name__} could not {action}: {type(error).__name__} in line {frame.lineno} of "
            f"{Path(frame.filename).name}. Ask its author. In Python, load_task(…).dataset(…) shows the whole error"
        ) from None
