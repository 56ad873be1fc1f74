"""How well a model's outputs fit local outcomes: order, error and calibration, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from client_sdk.released.recalibration import Floats, NoFit, ScoreLine, fit_classes, fit_logit, fit_number
from client_sdk.released.scores import scores
from private_learning.tasks import Classification, Task
from private_learning.tasks.regression import Regression

LocalScores = dict[str, float | None]
"""Name -> number. None where the outcomes do not determine it."""


def local_scores(task: Task, outputs: Floats, targets: NDArray[Any]) -> LocalScores:
    """Return area under the ROC curve, Brier score, log loss and calibration, or errors and calibration of a number.

    The calibration slope is that of a logistic regression of the outcome on the logit. The calibration intercept is
    that of the logit as offset (calibration in the large, Van Calster et al. 2019). Perfect are 1 and 0. With several
    classes the slope is the inverse temperature. Of a number they are the line of outcomes on predictions.

    Args:
        outputs: (n, k) of the model, n at least 1.
        targets: (n,) labels, or numbers as the task scales them.
    """
    predictions = task.predictions(torch.as_tensor(outputs)).numpy()
    if not isinstance(task, Classification):
        return _of_number(task, outputs, targets)
    result = scores(predictions, targets.astype(np.int64))
    values: LocalScores = {"roc_auc": result.roc_auc, "brier": result.brier, "log_loss": result.log_loss}
    if task.classes > 2:
        slope = _fitted(lambda: fit_classes(outputs, targets, with_offsets=False))
        return values | {"calibration_slope": None if slope is None else slope.slope}
    slope = _fitted(lambda: fit_logit(outputs[:, 0], targets))
    level = _fitted(lambda: fit_logit(outputs[:, 0], targets, with_slope=False))
    return values | {
        "calibration_slope": None if slope is None else slope.slope,
        "calibration_intercept": None if level is None else float(level.offsets[0]),
    }


def _of_number(task: Task, outputs: Floats, targets: NDArray[Any]) -> LocalScores:
    values: LocalScores = dict(task.metrics(torch.as_tensor(outputs), torch.as_tensor(targets)))
    if not isinstance(task, Regression):
        return values
    outcomes = task.outcomes(torch.as_tensor(targets)).numpy()
    predictions = task.predictions(torch.as_tensor(outputs)).numpy()[:, 0]
    line = _fitted(lambda: fit_number(predictions, outcomes))
    return values | {
        "calibration_slope": None if line is None else line.slope,
        "calibration_intercept": None if line is None else float(line.offsets[0]),
    }


def _fitted(fit: Callable[[], ScoreLine]) -> ScoreLine | None:
    try:
        return fit()
    except NoFit:
        return None
