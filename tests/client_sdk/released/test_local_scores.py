"""Scores and calibration of outputs against scikit-learn and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import metrics

from client_sdk.released.local_scores import local_scores
from private_learning.tasks import load
from tests.factories.released import TABLE

DRAW = np.random.default_rng(8)
LOGITS = DRAW.normal(size=(300, 1)) * 1.5
EVENTS = (DRAW.uniform(size=300) < 1 / (1 + np.exp(-0.7 * LOGITS[:, 0]))).astype(np.int64)
BINARY = load("logistic-regression", TABLE)


def test_scores_of_two_classes_are_those_of_other_packages() -> None:
    scores = local_scores(BINARY, LOGITS, EVENTS)
    probabilities = 1 / (1 + np.exp(-LOGITS[:, 0]))
    reference = sm.Logit(EVENTS, sm.add_constant(LOGITS)).fit(disp=False).params
    assert scores["roc_auc"] == pytest.approx(metrics.roc_auc_score(EVENTS, probabilities))
    assert scores["brier"] == pytest.approx(metrics.brier_score_loss(EVENTS, probabilities))
    assert scores["log_loss"] == pytest.approx(metrics.log_loss(EVENTS, probabilities))
    assert scores["calibration_slope"] == pytest.approx(reference[1], rel=1e-6)
    level = sm.GLM(EVENTS, np.ones((300, 1)), family=sm.families.Binomial(), offset=LOGITS[:, 0]).fit().params[0]
    assert scores["calibration_intercept"] == pytest.approx(level, rel=1e-6)


def test_one_class_leaves_the_calibration_unknown() -> None:
    scores = local_scores(BINARY, LOGITS, np.zeros(300, np.int64))
    assert scores["calibration_slope"] is scores["calibration_intercept"] is scores["roc_auc"] is None
    assert scores["log_loss"] is not None


def test_a_number_is_scored_in_its_own_unit() -> None:
    task = load("regression", {**TABLE, "label": "days", "low": 0.0, "high": 30.0})
    outputs = DRAW.uniform(-0.5, 0.5, size=(80, 1))
    targets = (0.5 * outputs[:, 0] + 0.2).astype(np.float32)
    scores = local_scores(task, outputs, targets)
    assert scores["calibration_slope"] == pytest.approx(0.5, rel=1e-5)
    # 15 + 15 (0.5 x + 0.2) on 15 + 15 x.
    assert scores["calibration_intercept"] == pytest.approx(15 * 1.2 - 0.5 * 15, rel=1e-5)
    assert scores["rmse"] == pytest.approx(float(np.sqrt(np.mean((15 * (outputs[:, 0] - targets)) ** 2))), rel=1e-5)
