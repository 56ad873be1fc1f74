"""The declared evaluation set as a process of its own: fetches every released model and puts its metrics.

The set is outside every guarantee, and the study says so: its patients are not protected by the budget.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from client_sdk.api.calls import round_view
from client_sdk.api.client import Client, OperatorKey
from client_sdk.api.config import load as load_settings
from client_sdk.data import load as load_records
from client_sdk.errors import ConfigurationError, NotFoundError
from client_sdk.protocol.study.messages import Metrics, RoundView
from client_sdk.protocol.wire.tensors import decode
from client_sdk.tasks import load as load_task
from client_sdk.training.local import load_weights, spec_of_model

PAUSE_SECONDS = 0.15


def evaluate(client: Client, study: str, data: Path, patient_column: str | None, name: str) -> None:
    """Put metrics for every released round until the study is finished."""
    training = client.study(study).settings.training
    task = load_task(training.task, training.task_parameters)
    dataset = task.dataset(load_records(data, patient_column=patient_column))
    model = task.model().eval()
    number = 1
    while True:
        view = _round(client, study, number)
        if view is None or view.state not in ("released", "abandoned", "stopped"):
            if client.study(study).state == "finished" and _round(client, study, number) == view:
                return
            time.sleep(PAUSE_SECONDS)
            continue
        if view.state == "released" and view.metrics is None:
            load_weights(model, decode(client.model(study, number), spec_of_model(model)))
            with torch.no_grad():
                values = task.metrics(model(dataset.inputs), dataset.targets)
            client.put_metrics(study, number, Metrics(evaluation_set=name, values=values))
        number += 1


def _round(client: Client, study: str, number: int) -> RoundView | None:
    try:
        return client.send(round_view(study, number))
    except NotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("data", type=Path)
    parser.add_argument("--patient-column")
    parser.add_argument("--name", required=True, help="what the evaluation set is called in the study's metrics")
    options = parser.parse_args()
    settings = load_settings()
    if settings.operator_key is None:
        raise ConfigurationError("set WARDROUND_OPERATOR_KEY_FILE")
    with Client(settings.connection(), OperatorKey(settings.operator_key.get_secret_value())) as client:
        evaluate(client, options.study, options.data, options.patient_column, options.name)


if __name__ == "__main__":
    main()
