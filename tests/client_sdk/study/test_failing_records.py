"""A record on which a model fails is evaluated as "no prediction", and moves nobody else's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from client_sdk.study.evaluated import EvaluatedPatients
from client_sdk.study.preparation import able
from private_learning.tasks.tables import LogisticRegression
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from tests.client_sdk.study.test_evaluated import SPLIT, some_weights
from tests.factories.hospitals import plain_policy, records
from tests.factories.settings import settings


class Fails(nn.Linear):
    """A linear layer that fails on the one record whose first input is this."""

    def __init__(self, way: str, value: float) -> None:
        super().__init__(2, 1)
        self.way, self.value = way, value

    def forward(self, input: Tensor) -> Tensor:
        here = input[:, :1] == self.value
        if self.way == "raises" and bool(here.any()):
            raise ArithmeticError("no such age")
        return super().forward(input) + here.to(input.dtype).masked_fill(here, torch.nan)


@pytest.mark.parametrize("way", ["raises", "gives NaN"])
def test_whoever_the_model_fails_on_has_the_cell_of_no_prediction_and_moves_no_other(way: str) -> None:
    data = records(80)
    chosen = settings(statistics={"max_queries": 5, "max_cells": 100}, evaluation={"share": 0.4})
    plain = LogisticRegression(chosen.training.task_parameters)
    place = int(np.flatnonzero(SPLIT.set_aside(data.patients))[3])
    value = float(plain.inputs(data)[place, 0])

    class Task(LogisticRegression):
        def model(self) -> nn.Module:
            return Fails(way, value)

    task = Task(chosen.training.task_parameters)
    found = able(task, data, plain_policy(), chosen, None, "cpu", 60.0, "mercy", "1", SPLIT).evaluated
    assert found is not None
    question = Evaluation.model_validate(
        {"kind": "evaluation", "model": 1, "prediction": "binary", "noise_multiplier": 6.0, "bins": 10}
    )
    weights = some_weights(chosen)
    columns = found.columns(question, weights)
    failed = np.array(found.identifiers) == data.patients[place]
    assert np.isnan(columns[PREDICTION]).tolist() == failed.tolist()
    assert found.records is not None
    rest = EvaluatedPatients(found.training, found.records.take(np.flatnonzero(~failed))).columns(question, weights)
    assert columns[PREDICTION][~failed].tobytes() == rest[PREDICTION].tobytes()
    assert columns[OUTCOME][~failed].tobytes() == rest[OUTCOME].tobytes()
    moved = question.total(columns, 1.0) - question.total(rest, 1.0)
    assert moved.tolist() == [0] * (question.cells - 1) + [1]
