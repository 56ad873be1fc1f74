"""Metrics of a model on records at hand, and of a study's rounds as they come."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from client_sdk.errors import NotFoundError
from client_sdk.released import ReleasedModel, load_model
from client_sdk.released.evaluation import evaluated, values_of, watch
from client_sdk.released.scores import Scores
from private_learning.records import DataError, Table
from study_protocol.study.messages import Metrics, Problem
from tests.factories.released import TABLE, write_model
from tests.factories.settings import settings
from tests.factories.wire_answers import round_view

DRAW = np.random.default_rng(1)
COUNT = 60
RECORDS = Table.of(
    {
        "age": DRAW.uniform(18, 90, COUNT),
        "chol": DRAW.uniform(100, 400, COUNT),
        "thal": DRAW.choice(["3", "6", "7"], COUNT),
        "sick": DRAW.integers(2, size=COUNT),
        "outcome": DRAW.uniform(0, 30, COUNT),
    }
)
LABELS = RECORDS.numbers("sick").astype(int)


def model(tmp_path: Path, name: str = "logistic-regression", parameters: Any = TABLE) -> ReleasedModel:
    return load_model(write_model(tmp_path / "m.safetensors", name, parameters))


def test_the_scores_of_a_classifier_are_those_of_its_probabilities(tmp_path: Path) -> None:
    released = model(tmp_path)
    found = evaluated(released, RECORDS)
    assert isinstance(found, Scores)
    probabilities = released(RECORDS)[:, 1]
    assert found.accuracy == pytest.approx(metrics.accuracy_score(LABELS, probabilities > 0.5))
    assert values_of(found)["roc_auc"] == pytest.approx(metrics.roc_auc_score(LABELS, probabilities))
    assert set(values_of(found)) == {"accuracy", "roc_auc", "log_loss", "brier"}


def test_any_other_task_has_its_own_metrics(tmp_path: Path) -> None:
    parameters = {**TABLE, "label": "outcome", "low": 0.0, "high": 30.0}
    released = model(tmp_path, "regression", parameters)
    found = evaluated(released, RECORDS)
    assert isinstance(found, dict)
    assert values_of(found) is found
    assert all(np.isfinite(value) for value in found.values())


def test_records_that_are_not_of_the_task_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="chol"):
        evaluated(model(tmp_path), Table.of({"age": [40.0], "sick": [1], "thal": ["3"]}))


class Coordinator:
    """A study of four rounds: the second came to nothing, the third has metrics, the fourth answered a question."""

    def __init__(self, body: bytes) -> None:
        self.body, self.put, self.slept = body, dict[int, Metrics](), list[float]()
        measured = Metrics(evaluation_set="holdout", values={"accuracy": 0.5})
        view = round_view(1, "mercy", received=False)
        self.rounds = [
            view,
            view.model_copy(update={"round": 2, "state": "abandoned", "model_version": None}),
            view.model_copy(update={"round": 3, "metrics": measured}),
            view.model_copy(update={"round": 4, "query": 7}),
        ]
        self.known = 1

    def study(self, name: str) -> Any:
        chosen = settings(training={"task": "logistic-regression", "task_parameters": dict(TABLE)})
        return SimpleNamespace(settings=chosen, state="finished" if self.known == 5 else "running")

    def send(self, call: Any) -> Any:
        number = int(call.target.rsplit("/", 1)[1])
        if number > min(self.known, len(self.rounds)):
            told = {"type": "x", "title": "x", "status": 404, "code": "unknown-round", "detail": "x", "request_id": "r"}
            raise NotFoundError(Problem.model_validate(told))
        return self.rounds[number - 1]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.known += 1

    def model(self, study: str, number: int) -> bytes:
        assert number == 1
        return self.body

    def put_metrics(self, study: str, number: int, measured: Metrics) -> None:
        self.put[number] = measured


def test_only_released_rounds_of_training_without_metrics_are_measured(tmp_path: Path) -> None:
    released = model(tmp_path)
    other: Any = Coordinator((tmp_path / "m.safetensors").read_bytes())
    told: list[tuple[int, dict[str, float]]] = []
    watch(other, "sepsis", RECORDS, "holdout", 9.0, lambda number, values: told.append((number, values)))
    values = values_of(evaluated(released, RECORDS))
    assert other.put == {1: Metrics(evaluation_set="holdout", values=values)}
    assert told == [(1, values)]
    # One pause for every round that had not come yet.
    assert other.slept == [9.0] * 4
