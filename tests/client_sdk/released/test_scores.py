"""Every number beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from client_sdk.released.scores import scores


def drawn(classes: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities in steps of 1/64, so that some are equal and some 0, and labels that they say something of."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(64, rng.dirichlet(np.ones(classes), n))
    labels = np.array([rng.choice(classes, p=row / 64) for row in counts])
    return counts / 64, labels


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_all_scores_are_those_of_scikit_learn(classes: int, seed: int) -> None:
    probabilities, labels = drawn(classes, 400, seed)
    # Now and then the label's class has probability 0.
    labels[:3] = probabilities[:3].argmin(axis=1)
    found, every = scores(probabilities, labels), list(range(classes))
    given = probabilities[:, 1] if classes == 2 else probabilities
    area = metrics.roc_auc_score(labels, given, multi_class="ovr", labels=None if classes == 2 else every)
    assert found.n == 400
    assert found.accuracy == pytest.approx(metrics.accuracy_score(labels, probabilities.argmax(axis=1)), abs=1e-12)
    assert found.roc_auc == pytest.approx(area, abs=1e-12)
    assert found.log_loss == pytest.approx(metrics.log_loss(labels, probabilities, labels=every), abs=1e-12)
    assert found.brier == pytest.approx(metrics.brier_score_loss(labels, given, labels=every), abs=1e-12)
    assert found.confusion == metrics.confusion_matrix(labels, probabilities.argmax(axis=1), labels=every).tolist()


def test_without_records_of_a_class_there_is_no_area() -> None:
    probabilities, _ = drawn(3, 20, 1)
    found = scores(probabilities, np.zeros(20, np.int64))
    assert found.roc_auc is None
    assert set(found.values()) == {"accuracy", "log_loss", "brier"}


def test_one_record() -> None:
    found = scores(np.array([[0.25, 0.75]]), np.array([1]))
    assert (found.n, found.accuracy, found.brier) == (1, 1.0, 0.0625)
    assert found.log_loss == pytest.approx(np.log(4 / 3))
    assert found.confusion == [[0, 0], [0, 1]]
