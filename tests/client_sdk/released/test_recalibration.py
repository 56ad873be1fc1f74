"""Fits against statsmodels, scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import optimize, stats
from sklearn.linear_model import Ridge

from client_sdk.released.recalibration import (
    HeadFit,
    NoFit,
    fit_classes,
    fit_head,
    fit_logit,
    fit_number,
    losses,
)

DRAW = np.random.default_rng(4)
LOGITS = DRAW.normal(size=400) * 2
EVENTS = (DRAW.uniform(size=400) < 1 / (1 + np.exp(-(0.5 * LOGITS - 1)))).astype(np.int64)


def test_intercept_and_slope_are_those_of_statsmodels() -> None:
    line = fit_logit(LOGITS, EVENTS)
    reference = sm.Logit(EVENTS, sm.add_constant(LOGITS)).fit(disp=False, tol=1e-14).params
    np.testing.assert_allclose([line.offsets[0], line.slope], reference, rtol=1e-8)


def test_the_intercept_alone_is_that_of_an_offset_in_statsmodels() -> None:
    line = fit_logit(LOGITS, EVENTS, with_slope=False)
    family = sm.families.Binomial()
    reference = sm.GLM(EVENTS, np.ones((400, 1)), family=family, offset=LOGITS).fit(tol=1e-14).params
    assert line.slope == 1.0
    np.testing.assert_allclose(line.offsets, reference, rtol=1e-8)
    # Its mean prediction is then the share of events.
    assert np.mean(1 / (1 + np.exp(-(LOGITS + line.offsets[0])))) == pytest.approx(EVENTS.mean(), abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "events"),
    [
        (LOGITS, np.zeros(400, np.int64)),
        (LOGITS, (LOGITS > 0.3).astype(np.int64)),
        (np.full(400, 0.7), EVENTS),
    ],
    ids=["one outcome", "separated", "one logit"],
)
def test_outcomes_that_determine_no_logit_are_refused(logits: np.ndarray, events: np.ndarray) -> None:
    with pytest.raises(NoFit):
        fit_logit(logits, events)


def test_far_logits_do_not_lead_the_steps_astray() -> None:
    """Newton's whole step from slope 1 overshoots here."""
    events = (DRAW.uniform(size=400) < 0.4).astype(np.int64)
    line = fit_logit(40 * LOGITS, events)
    reference = sm.Logit(events, sm.add_constant(LOGITS)).fit(disp=False, tol=1e-14).params
    np.testing.assert_allclose([line.offsets[0], 40 * line.slope], reference, rtol=1e-7, atol=1e-9)


def _classes(n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    scores = DRAW.normal(size=(n, 3)) * 2
    true = 0.4 * scores + np.array([0.0, 1.0, -0.5])
    labels = np.argmax(true + DRAW.gumbel(size=true.shape), axis=1)
    return scores, labels


def test_temperature_and_biases_are_a_maximum_of_the_likelihood() -> None:
    scores, labels = _classes()
    line = fit_classes(scores, labels)

    def loss(weights: np.ndarray) -> float:
        adapted = weights[0] * scores + np.array([weights[1], weights[2], 0.0])
        return float(np.mean(np.log(np.exp(adapted).sum(axis=1)) - adapted[np.arange(len(labels)), labels]))

    reference = optimize.minimize(loss, [1.0, 0, 0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14})
    np.testing.assert_allclose([line.slope, *line.offsets[:2]], reference.x, atol=1e-5)
    assert line.offsets[2] == 0


def test_two_classes_with_scores_are_the_logit_of_their_difference() -> None:
    scores = np.column_stack([np.zeros(400), LOGITS])
    line, binary = fit_classes(scores, EVENTS), fit_logit(LOGITS, EVENTS)
    assert line.slope == pytest.approx(binary.slope, abs=1e-6)
    assert line.offsets[1] - line.offsets[0] == pytest.approx(binary.offsets[0], abs=1e-6)


def test_a_class_without_a_record_has_no_bias_but_a_temperature() -> None:
    scores, labels = _classes()
    kept = labels != 2
    with pytest.raises(NoFit, match="a class has no record"):
        fit_classes(scores[kept], labels[kept])
    assert fit_classes(scores[kept], labels[kept], with_offsets=False).slope > 0
    with pytest.raises(NoFit, match="one class only"):
        fit_classes(scores[labels == 1], labels[labels == 1], with_offsets=False)


def test_a_number_s_line_is_that_of_least_squares() -> None:
    outputs = DRAW.normal(size=90)
    targets = 0.3 * outputs + 0.1 + DRAW.normal(size=90)
    line, reference = fit_number(outputs, targets), stats.linregress(outputs, targets)
    np.testing.assert_allclose([line.slope, line.offsets[0]], [reference.slope, reference.intercept], rtol=1e-12)
    with pytest.raises(NoFit):
        fit_number(np.ones(5), np.arange(5.0))


@pytest.mark.parametrize("ridge", [0.1, 30.0])
def test_the_head_of_a_number_is_ridge_regression_of_what_the_released_one_leaves(ridge: float) -> None:
    features = DRAW.normal(size=(120, 3))
    targets = features @ np.array([1.0, -2.0, 0.5]) + DRAW.normal(size=120)
    start = HeadFit(np.array([[0.5, 0.0, 0.0]]), np.array([0.2]))
    fit = fit_head(start, features, targets, ridge, is_number=True)
    design = np.column_stack([features, np.ones(120)])
    reference = Ridge(alpha=ridge, fit_intercept=False).fit(design, targets - start.outputs(features)[:, 0]).coef_
    np.testing.assert_allclose(fit.weight[0] - start.weight[0], reference[:3], atol=1e-5)
    np.testing.assert_allclose(fit.bias - start.bias, reference[3:], atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_head_of_classes_has_no_gradient_left(outputs: int) -> None:
    """By differences of its own objective, written anew."""
    features = DRAW.normal(size=(200, 2))
    labels = DRAW.integers(2 if outputs == 1 else 3, size=200)
    start = HeadFit(DRAW.normal(size=(outputs, 2)), DRAW.normal(size=outputs))
    fit = fit_head(start, features, labels, 2.0, is_number=False)

    def objective(flat: np.ndarray) -> float:
        layer = HeadFit(flat[: 2 * outputs].reshape(outputs, 2), flat[2 * outputs :])
        away = np.concatenate([(layer.weight - start.weight).ravel(), layer.bias - start.bias])
        return float(losses(layer.outputs(features), labels, is_number=False).sum() + away @ away)

    best = np.concatenate([fit.weight.ravel(), fit.bias])
    assert np.abs(optimize.approx_fprime(best, objective, 1e-6)).max() < 2e-3
    assert objective(best) < objective(np.concatenate([start.weight.ravel(), start.bias]))


def test_losses_are_those_of_probabilities() -> None:
    np.testing.assert_allclose(
        losses(LOGITS[:, None], EVENTS, is_number=False), -stats.bernoulli.logpmf(EVENTS, 1 / (1 + np.exp(-LOGITS)))
    )
    assert np.isfinite(losses(np.array([[1e4], [-1e4]]), np.array([0, 1]), is_number=False)).all()
