"""Figures of classifiers of several classes are those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from study_protocol.queries.evaluation.classes import Confusion
from study_protocol.queries.groups import EVERYBODY
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION
from tests.factories.evaluations import EVALUATIONS, estimates, evaluated, rows, who
from tests.factories.questions import answer_without_noise, question

EXACT = {"rel": 1e-9, "abs": 1e-12}


@pytest.mark.parametrize("form", ["classes", "classes-apart"])
def test_classes(form: str) -> None:
    asked, columns = question(EVALUATIONS[form]), evaluated(form, 3000)
    found = answer_without_noise(asked, columns)
    for group in (EVERYBODY, "sex: f"):
        keep = who(columns, group)
        predicted, outcome = columns[PREDICTION][keep], columns[OUTCOME][keep]
        cells = metrics.confusion_matrix(outcome, predicted).ravel()
        assert estimates(found, "confusion", group=group) == pytest.approx(cells, **EXACT)
        precision, recall, f1, _ = metrics.precision_recall_fscore_support(outcome, predicted)
        expected = {"accuracy": metrics.accuracy_score(outcome, predicted)}
        expected |= {"macro F1": f1.mean(), "balanced accuracy": metrics.balanced_accuracy_score(outcome, predicted)}
        for name, values in (("precision", precision), ("recall", recall), ("F1", f1)):
            expected |= {f"{name} of class {one}": value for one, value in enumerate(values)}
        assert {row["measure"]: row["estimate"] for row in rows(found, "performance", group)} == pytest.approx(
            expected, **EXACT
        )


def test_figures_of_a_matrix_that_one_reckons_by_hand() -> None:
    """Two classes: 30 right and 10 wrong of the first, 15 right and 5 wrong of the second."""
    found = Confusion(np.array([[30.0, 10.0], [5.0, 15.0]]), 0.0)
    assert found.shares().estimate == pytest.approx([45 / 60, 30 / 40, 15 / 20, 30 / 35, 15 / 25])
    assert found.f1().estimate == pytest.approx([60 / 75, 30 / 45])
    assert found.patients.tolist() == [60, 40, 20, 35, 25, 35, 20]
    means = found.means(np.random.default_rng(1))
    assert means.estimate == pytest.approx([(60 / 75 + 30 / 45) / 2, (30 / 40 + 15 / 20) / 2])


def test_noise_below_zero_is_taken_off_the_counts_and_kept_in_the_raw_ones() -> None:
    found = Confusion(np.array([[12.0, -2.0], [0.0, 10.0]]), 4.0)
    assert found.fitted.min() == 0
    assert found.fitted.sum() == pytest.approx(20)
    assert found.classes == 2


def test_means_are_unknown_where_no_class_stands_out_of_the_noise() -> None:
    means = Confusion(np.array([[3.0, 0.0], [0.0, 3.0]]), 100.0).means(np.random.default_rng(1))
    assert np.isnan(means.estimate).all()
    assert (means.low.tolist(), means.high.tolist()) == ([0, 0], [1, 1])
