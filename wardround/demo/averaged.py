"""The model that the demonstration reports: the mean of released models that its settings name; no privacy is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.numpy import load

from private_learning.records import load as load_records
from private_learning.tasks import load as load_task
from private_learning.training.weights import load_weights
from study_protocol.study.averaging import averaged_rounds
from study_protocol.study.settings import StudySettings


def shares_of(settings: StudySettings, released: Sequence[int]) -> dict[int, float]:
    """The weight of each of these released rounds, ascending; the first model where there is no round."""
    averaging = settings.training.optimiser.averaging
    if not released:
        return {0: 1.0}
    return {released[-1]: 1.0} if averaging is None else averaged_rounds(averaging, released)


def in_words(settings: StudySettings, averaged: Sequence[int]) -> str:
    """Which mean of the models of these rounds is reported."""
    averaging = settings.training.optimiser.averaging
    falling = averaging is not None and averaging.name == "exponential"
    return f"mean of its last {len(averaged)} released models{', newer ones counting more' if falling else ''}"


def accuracy_of(model: bytes, settings: StudySettings, data: Path, patient_column: str | None) -> float:
    """On the records of a file."""
    task = load_task(settings.training.task, settings.training.task_parameters)
    dataset = task.dataset(load_records(data, patient_column=patient_column))
    module = task.model().eval()
    load_weights(module, task.for_prediction(load(model)))
    with torch.no_grad():
        return task.metrics(module(dataset.inputs), dataset.targets)["accuracy"]
