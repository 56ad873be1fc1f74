"""The metrics of a model on records at hand, and those of a study's every released model, as they come."""

from __future__ import annotations

from collections.abc import Callable

from client_sdk.api.calls import round_view
from client_sdk.api.client import Client
from client_sdk.errors import NotFoundError
from client_sdk.released.model import ReleasedModel, model_of
from client_sdk.released.scores import Scores, scores
from private_learning.records import Records
from private_learning.tasks import Classification, Task, TaskDataset, dataset_of, of_study
from private_learning.tasks.backbone_file import BackboneFile
from study_protocol.study.any_settings import require_training
from study_protocol.study.messages import Metrics, RoundView

_ENDED = ("released", "abandoned", "stopped")
OnMetrics = Callable[[int, dict[str, float]], None]


def evaluated(model: ReleasedModel, records: Records) -> Scores | dict[str, float]:
    """Return the scores of a classifier, or the own metrics of any other task. Raises DataError."""
    return _evaluated(model, dataset_of(model.task, records))


def _evaluated(model: ReleasedModel, dataset: TaskDataset) -> Scores | dict[str, float]:
    if isinstance(model.task, Classification):
        return scores(model.predicted(dataset.inputs), dataset.targets.numpy())
    return model.task.metrics(model.outputs(dataset.inputs), dataset.targets)


def values_of(scores: Scores | dict[str, float]) -> dict[str, float]:
    """The numbers by name."""
    return scores.values() if isinstance(scores, Scores) else scores


def watch(
    client: Client,
    study: str,
    records: Records,
    name: str,
    every: float,
    on_metrics: OnMetrics = lambda number, values: None,
    task: Task | None = None,
    backbone: BackboneFile | None = None,
) -> None:
    """Put metrics beside every released round, the first one first, until the study has ended and all have them.

    name   what the declared set is called in the study's metrics
    backbone  the file that the study names: weights, or a ProgramFile
    every  seconds between two questions while there is no new round

    Raises:
        DataError: records that are not of the study's task.
        ApiError, ConnectionFailed: run again. Rounds that have metrics are left as they are.
    """
    training = require_training(client.study(study).settings).training
    evaluated_task = of_study(training, backbone, task)
    dataset = dataset_of(evaluated_task, records)
    number = 1
    while True:
        view = _round(client, study, number)
        if view is None or view.state not in _ENDED:
            # Asked again: the round may have ended between the two answers.
            if client.study(study).state == "finished" and _round(client, study, number) == view:
                return
            client.sleep(every)
            continue
        # A query's round releases an answer and no model.
        if view.state == "released" and view.query is None and view.metrics is None:
            model = model_of(client.model(study, number), f"model {number} of {study}", evaluated_task)
            values = values_of(_evaluated(model, dataset))
            client.put_metrics(study, number, Metrics(evaluation_set=name, values=values))
            on_metrics(number, values)
        number += 1


def _round(client: Client, study: str, number: int) -> RoundView | None:
    try:
        return client.send(round_view(study, number))
    except NotFoundError:
        return None
