"""How good a classifier's probabilities are on records whose labels are known. NumPy and SciPy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from private_learning.tasks.ranking import area

_SMALLEST = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Scores:
    """n: records. The class with the largest probability is the predicted one, of equal ones the first.

    accuracy   share of records whose class is predicted
    roc_auc    probability that a record of the class gets more than one of the others, half of it where they are equal.
               With more than two classes the mean over all of them. None where a class has no record
    log_loss   mean of −log of the label's probability, where one below 2.2e-16 counts as that
    brier      mean squared distance of probability and outcome: of class 1, with more than two classes over all
    confusion  confusion[i][j]: records of class i that are predicted as j
    """

    n: int
    accuracy: float
    roc_auc: float | None
    log_loss: float
    brier: float
    confusion: list[list[int]]

    def values(self) -> dict[str, float]:
        """The scores that are one number each."""
        scores = {"accuracy": self.accuracy, "roc_auc": self.roc_auc, "log_loss": self.log_loss, "brier": self.brier}
        return {name: value for name, value in scores.items() if value is not None}


def scores(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> Scores:
    """probabilities: (n, classes), n at least 1. labels: (n,), from 0 to classes − 1."""
    n, classes = probabilities.shape
    predicted = probabilities.argmax(axis=1)
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    true_class = np.clip(probabilities[np.arange(n), labels], _SMALLEST, 1 - _SMALLEST)
    squares = np.square(probabilities - np.eye(classes)[labels])
    return Scores(
        n=n,
        accuracy=int(np.sum(predicted == labels)) / n,
        roc_auc=_roc_auc(probabilities, labels),
        log_loss=float(-np.sum(np.log(true_class))) / n,
        # Of two classes both squares are the same.
        brier=float(np.sum(squares)) / n / (2 if classes == 2 else 1),
        confusion=confusion.tolist(),
    )


def _roc_auc(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    classes = probabilities.shape[1]
    if len(np.unique(labels)) < classes:
        return None
    # Of two classes one area says all.
    scored_classes = [1] if classes == 2 else range(classes)
    areas = [area(probabilities[:, k], labels == k) for k in scored_classes]
    return sum(areas) / len(areas)
