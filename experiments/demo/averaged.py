"""The model that the demonstration reports: the mean of the models released last, which costs no privacy.

`choose_settings` chose the last half, on validation patients.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.numpy import load

from client_sdk.api.client import Client
from client_sdk.data import load as load_records
from client_sdk.protocol.study.averaging import average_models
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.tasks import load as load_task
from client_sdk.training.local import load_weights


def averaged_rounds(rounds: int) -> range:
    """The last half of rounds 1 … `rounds`; the first model where there is no round."""
    return range(rounds // 2 + 1, rounds + 1) if rounds else range(1)


def averaged_model(operator: Client, study: str, released: list[int]) -> bytes:
    """The mean of the last half of these released rounds; released: their numbers, ascending."""
    numbers = [released[number - 1] for number in averaged_rounds(len(released))] if released else [0]
    return average_models([operator.model(study, number) for number in numbers])


def accuracy_of(model: bytes, settings: StudySettings, data: Path, patient_column: str | None) -> float:
    """On the records of a file."""
    task = load_task(settings.training.task, settings.training.task_parameters)
    dataset = task.dataset(load_records(data, patient_column=patient_column))
    module = task.model().eval()
    load_weights(module, load(model))
    with torch.no_grad():
        return task.metrics(module(dataset.inputs), dataset.targets)["accuracy"]
