"""Figures of predicted numbers are those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.evaluation.numbers import BIAS, EXPLAINED, MEAN, RMSE
from study_protocol.queries.groups import EVERYBODY
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION, Evaluation
from tests.factories.evaluations import EVALUATIONS, evaluated, figure, who
from tests.factories.questions import answer_without_noise, question

EXACT = {"rel": 1e-9, "abs": 1e-12}


@pytest.mark.parametrize("form", ["number", "number-apart", "number-centred"])
def test_numbers(form: str) -> None:
    """After clipping. Every patient is rounded to the grid: with noise 0.001 it is finer than 1e-9 of the range."""
    asked, columns = question(EVALUATIONS[form], noise_multiplier=0.001), evaluated(form, 3000)
    assert isinstance(asked, Evaluation)
    columns[PREDICTION][:9] = [-50, 50, np.inf, -np.inf, 0, 0, 0, 0, 0]
    found = answer_without_noise(asked, columns)
    for group in (EVERYBODY, "sex: f") if asked.groups else (EVERYBODY,):
        keep = who(columns, group)
        outcome = np.clip(columns[OUTCOME][keep], -4, 6)
        error = np.clip(columns[PREDICTION][keep] - outcome, -3, 3)
        assert figure(found, MEAN, group) == pytest.approx(outcome.mean(), rel=1e-9, abs=1e-9)
        assert figure(found, BIAS, group) == pytest.approx(error.mean(), rel=1e-9, abs=1e-9)
        assert figure(found, RMSE, group) == pytest.approx(
            metrics.root_mean_squared_error(outcome, outcome + error), rel=1e-9
        )
        assert figure(found, EXPLAINED, group) == pytest.approx(metrics.r2_score(outcome, outcome + error), rel=1e-9)


def test_an_outcome_without_spread_has_no_r_squared() -> None:
    """50 patients with one outcome; the noise may leave a negative spread, by which nothing is divided."""
    asked = question(EVALUATIONS["number"])
    total = np.array([50.0, 0.0, 50.5, 0.0, 3.0])
    answer = asked.answer(NoisedSum(np.append(total, 0.0), 1.0, 1))
    *_, error, explained = answer.tables[0].rows
    assert error[2] is not None
    assert explained[2:7] == (None, None, None, None, 1.0)
