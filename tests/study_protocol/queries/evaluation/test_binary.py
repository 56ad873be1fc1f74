"""Evaluations without noise are those of scikit-learn on the pooled patients, after the same binning and clipping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.calibration import calibration_curve

from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.evaluation.binary import (
    AREA,
    AVERAGE_PRECISION,
    BRIER,
    MAX_AREA,
    MAX_BRIER,
    MIN_AREA,
    MIN_BRIER,
    PREVALENCE,
)
from study_protocol.queries.groups import EVERYBODY
from study_protocol.queries.kinds.evaluation import OUTCOME, PREDICTION
from tests.factories.evaluations import EVALUATIONS, estimates, evaluated, figure, rows, who
from tests.factories.questions import answer_without_noise, exact, question

EXACT = {"rel": 1e-9, "abs": 1e-12}


BINARY = [
    ("threshold", EVERYBODY),
    ("bins", EVERYBODY),
    ("bins", "sex: f"),
    ("tree", EVERYBODY),
    ("tree", "sex: f, age: 60 to 80"),
    ("apart", "age: 60 to 80"),
]


@pytest.mark.quick("apart-age: 60 to 80", "bins-all patients", "bins-sex: f", "threshold-all patients")
@pytest.mark.parametrize(("form", "group"), BINARY)
def test_probabilities(form: str, group: str) -> None:
    asked, columns = question(EVALUATIONS[form]), evaluated(form, 3000)
    found = answer_without_noise(asked, columns)
    keep = who(columns, group)
    scores, outcome = columns[PREDICTION][keep], columns[OUTCOME][keep]
    ends = np.array(asked.ends)  # type: ignore[union-attr]
    binned = ((ends[:-1] + ends[1:]) / 2)[np.digitize(scores, ends[1:-1])]
    assert figure(found, AREA, group) == pytest.approx(metrics.roc_auc_score(outcome, binned), **EXACT)
    assert figure(found, AVERAGE_PRECISION, group) == pytest.approx(
        metrics.average_precision_score(outcome, binned), **EXACT
    )
    assert figure(found, BRIER, group) == pytest.approx(metrics.brier_score_loss(outcome, binned), **EXACT)
    assert figure(found, PREVALENCE, group) == pytest.approx(outcome.mean(), **EXACT)
    _require_measures(found, group, scores, outcome, ends[1:-1])
    _require_curves(found, group, binned, outcome, ends)


def _require_measures(
    found: Answer, group: str, scores: NDArray[Any], outcome: NDArray[Any], thresholds: NDArray[Any]
) -> None:
    for threshold in thresholds.tolist():
        called = scores >= threshold
        expected = {
            "accuracy": metrics.accuracy_score(outcome, called),
            "sensitivity": metrics.recall_score(outcome, called),
            "specificity": metrics.recall_score(outcome, called, pos_label=0),
            "positive predictive value": metrics.precision_score(outcome, called),
            "negative predictive value": metrics.precision_score(outcome, called, pos_label=0),
        }
        for measure, value in expected.items():
            at = estimates(found, "thresholds", group=group, measure=measure, threshold=threshold)
            assert at == [pytest.approx(value, **EXACT)]
        # Vickers, Elkin 2006.
        (_, wrong), (_, right) = metrics.confusion_matrix(outcome, called)
        odds = threshold / (1 - threshold)
        model, everybody = estimates(found, "net-benefit", group=group, threshold=threshold)
        assert model == pytest.approx(right / len(scores) - wrong / len(scores) * odds, **EXACT)
        assert everybody == pytest.approx(outcome.mean() - (1 - outcome.mean()) * odds, **EXACT)


def _require_curves(found: Answer, group: str, binned: NDArray[Any], outcome: NDArray[Any], ends: NDArray[Any]) -> None:
    false, true, _ = metrics.roc_curve(outcome, binned, drop_intermediate=False)
    assert estimates(found, "roc", group=group) == pytest.approx(true, **EXACT)
    assert [row["false positive rate"] for row in rows(found, "roc", group)] == pytest.approx(false, **EXACT)
    precision, recall, _ = metrics.precision_recall_curve(outcome, binned)
    # Theirs rise, and begin at recall 1; their last point is there for drawing alone.
    assert estimates(found, "precision-recall", group=group) == pytest.approx(precision[-2::-1], **EXACT)
    assert [row["recall"] for row in rows(found, "precision-recall", group)] == pytest.approx(recall[-2::-1], **EXACT)
    if len(ends) > 3:
        observed, _ = calibration_curve(outcome, binned, n_bins=len(ends) - 1)
        assert estimates(found, "calibration", group=group) == pytest.approx(observed, **EXACT)


SCORE = st.sampled_from([0.0, 0.05, 0.1, 0.5, 0.95, 1.0]) | st.floats(0, 1)


@settings(max_examples=70, deadline=None)
@given(
    patients=st.lists(st.tuples(SCORE, st.booleans()), min_size=2, max_size=40),
    bins=st.sampled_from([2, 5, 8, 9, 20, 33]),
)
def test_the_exact_area_and_brier_score_lie_within_the_bounds(patients: list[tuple[float, bool]], bins: int) -> None:
    """Of any scores, ties and ends of bins among them."""
    scores, outcome = (np.array(values, np.float64) for values in zip(*patients, strict=True))
    found = answer_without_noise(
        question(EVALUATIONS["threshold"], edges=None, bins=bins), {PREDICTION: scores, OUTCOME: outcome}
    )
    brier = np.mean((scores - outcome) ** 2)
    assert figure(found, MIN_BRIER) - 1e-12 <= brier <= figure(found, MAX_BRIER) + 1e-12
    if 0 < outcome.sum() < len(outcome):
        area = metrics.roc_auc_score(outcome, scores)
        assert figure(found, MIN_AREA) - 1e-12 <= area <= figure(found, MAX_AREA) + 1e-12
    else:
        assert figure(found, AREA) is None


@pytest.mark.parametrize("form", ["tree", "apart", "bins"])
def test_noise_leaves_curves_that_rise_and_counts_that_fit(form: str) -> None:
    """Of few patients under much noise."""
    asked, columns = question(EVALUATIONS[form]), evaluated(form, 60)
    for seed in range(5):
        noise = np.random.default_rng(seed).normal(0, 4, asked.cells)
        found = asked.answer(NoisedSum(exact(asked, columns) + noise, 4.0, seed))
        known = [row for row in rows(found, "roc") if row["estimate"] is not None]
        for name in ("estimate", "false positive rate"):
            curve = [row[name] for row in known if row[name] is not None]
            assert curve == sorted(curve)
        cells = rows(found, "cells")
        assert min(row["estimate"] for row in cells) >= 0
        (everybody,) = rows(found, "patients")
        either = [sum(row[name] for row in cells) for name in ("estimate", "raw")]
        assert either[1] == pytest.approx(everybody["raw"])
        assert either[0] >= everybody["raw"] - 1e-9
        for row in rows(found, "thresholds"):
            assert row["estimate"] is None or 0 <= row["estimate"] <= 1
            assert 0 <= row["low"] <= row["high"] <= 1
