"""Fits that move a model's outputs towards the outcomes of local patients. NumPy and SciPy alone.

Outputs are the scores before they become predictions: one logit of two classes, one score of each of several classes,
or one number. A fit returns a line for each of them, which the model's last layer can take in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.optimize  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
_minimize: Any = cast(Any, scipy.optimize).minimize  # It comes without annotations.
_STEPS, _CONVERGED = 100, 1e-12
# A slope beyond it stands for outcomes that the logit separates: the likelihood has no maximum.
_STEEPEST = 1e3


class NoFit(Exception):
    """The outcomes determine no fit. The text gives the reason."""


@dataclass(frozen=True)
class ScoreLine:
    """adapted outputs = slope · outputs + offsets, with one offset for each output."""

    slope: float
    offsets: Floats


def fit_logit(logits: Floats, events: Labels, *, with_slope: bool = True) -> ScoreLine:
    """Return the intercept and the slope of a logistic regression of the outcome on the logit, by maximum likelihood.

    Cox 1958. Without a slope it is the intercept alone, with the logit as offset (calibration in the large).

    Args:
        logits: (n,).
        events: (n,) 0 or 1.

    Raises:
        NoFit: one outcome only, equal logits, or logits that separate the outcomes.
    """
    if len(np.unique(events)) < 2:
        raise NoFit("all outcomes are equal")
    if with_slope and np.ptp(logits) == 0:
        raise NoFit("the model predicts the same for every patient")
    design = np.column_stack([np.ones_like(logits), logits]) if with_slope else np.ones((len(logits), 1))
    offset = np.zeros_like(logits) if with_slope else logits
    weights: Floats = np.array([0.0, 1.0])[: design.shape[1]]
    for _ in range(_STEPS):
        step = _newton_step(design, offset, weights, events)
        weights = np.asarray(weights + step, np.float64)
        if np.abs(weights).max() > _STEEPEST:
            break
        if np.abs(step).max() <= _CONVERGED * (1 + np.abs(weights).max()):
            return ScoreLine(float(weights[1]) if with_slope else 1.0, weights[:1])
    raise NoFit("the model's logits separate the outcomes")


def _newton_step(design: Floats, offset: Floats, weights: Floats, events: Labels) -> Floats:
    """Return Newton's step, halved until the likelihood does not fall. A concave likelihood always allows one."""
    probabilities = _sigmoid(offset + design @ weights)
    information = (design * (probabilities * (1 - probabilities))[:, None]).T @ design
    if not np.isfinite(information).all() or np.linalg.cond(information) > 1 / np.finfo(np.float64).eps:
        raise NoFit("the model's logits separate the outcomes")
    step: Floats = np.asarray(np.linalg.solve(information, design.T @ (events - probabilities)), np.float64)
    before = _logit_loss(offset + design @ weights, events)
    while np.abs(step).max() > _CONVERGED and _logit_loss(offset + design @ (weights + step), events) > before:
        step = step / 2
    return step


def fit_classes(scores: Floats, labels: Labels, *, with_offsets: bool = True) -> ScoreLine:
    """Return the inverse temperature and a bias for each class, by maximum likelihood (Guo et al. 2017, section 4.2).

    Args:
        scores: (n, classes), before the softmax.
        labels: (n,) from 0 to classes − 1. With offsets every class has one.

    Raises:
        NoFit: one class only, a class without a record, or scores that separate the classes.
    """
    classes = scores.shape[1]
    empty_classes = classes - len(np.unique(labels))
    if empty_classes == classes - 1 or (with_offsets and empty_classes):
        raise NoFit("one class only" if empty_classes == classes - 1 else "a class has no record")
    # One bias may be any number: adding one to all classes changes no probability.
    free = classes - 1 if with_offsets else 0
    indicators = np.eye(classes)[labels]

    def loss(weights: Floats) -> tuple[float, Floats]:
        outputs = weights[0] * scores + np.append(weights[1:], 0.0) if free else weights[0] * scores
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        pull = np.exp(logs) - indicators
        gradient = np.append((pull * scores).sum(), pull.sum(axis=0)[:free])
        return -float((logs * indicators).sum()) / len(labels), gradient / len(labels)

    start = np.append(1.0, np.zeros(free))
    result = _minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    if np.abs(result.x).max() > _STEEPEST:
        raise NoFit("the model's scores separate the classes")
    weights = np.asarray(result.x, np.float64)
    return ScoreLine(float(weights[0]), np.append(weights[1:], np.zeros(classes - free)))


def fit_number(outputs: Floats, targets: Floats) -> ScoreLine:
    """Return the line of least squares of targets on outputs, both (n,). Raises NoFit: all outputs are equal."""
    centred = outputs - outputs.mean()
    # Least squares on centred outputs: no large mean eats the digits of the slope.
    spread = float(centred @ centred)
    if spread == 0:
        raise NoFit("the model predicts the same for every patient")
    slope = float(centred @ targets) / spread
    return ScoreLine(slope, np.array([targets.mean() - slope * outputs.mean()]))


@dataclass(frozen=True)
class HeadFit:
    """A linear layer: weight (outputs, features), bias (outputs,)."""

    weight: Floats
    bias: Floats

    def outputs(self, features: Floats) -> Floats:
        """Return (n, outputs) of (n, features)."""
        return features @ self.weight.T + self.bias


def fit_head(start: HeadFit, features: Floats, targets: NDArray[Any], ridge: float, *, is_number: bool) -> HeadFit:
    """Return the layer that minimises loss + ridge/2 · ‖layer − start‖², summed over records.

    The loss is −log of the label's probability, or half the squared error of a number.

    Args:
        features: (n, features), what the layer sees.
        targets: (n,) labels, or numbers on the scale of the layer's output.
    """
    outputs, width = start.weight.shape
    size = outputs * width
    centre = np.concatenate([start.weight.ravel(), start.bias])

    def loss(flat: Floats) -> tuple[float, Floats]:
        layer = HeadFit(flat[:size].reshape(outputs, width), flat[size:])
        value, pull = _loss_of(layer.outputs(features), targets, is_number=is_number)
        gradient = np.concatenate([(pull.T @ features).ravel(), pull.sum(axis=0)])
        # Drawn to the released layer and not to 0: with few patients little changes.
        difference = flat - centre
        return value + ridge / 2 * float(difference @ difference), gradient + ridge * difference

    result = _minimize(loss, centre, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-13})
    return HeadFit(result.x[:size].reshape(outputs, width), result.x[size:])


def losses(outputs: Floats, targets: NDArray[Any], *, is_number: bool) -> Floats:
    """Return (n,) the loss of each record: −log of the label's probability, or the squared error of a number."""
    if is_number:
        return np.square(outputs[:, 0] - targets)
    if outputs.shape[1] == 1:
        return np.logaddexp(0.0, np.where(targets == 1, -outputs[:, 0], outputs[:, 0]))
    largest = outputs.max(axis=1)
    return largest + np.log(np.exp(outputs - largest[:, None]).sum(axis=1)) - outputs[np.arange(len(targets)), targets]


def _loss_of(outputs: Floats, targets: NDArray[Any], *, is_number: bool) -> tuple[float, Floats]:
    """Return the summed loss, half of the squared error, and (n, outputs) its derivative by the outputs."""
    value = float(losses(outputs, targets, is_number=is_number).sum())
    if is_number:
        return value / 2, outputs - targets[:, None]
    if outputs.shape[1] == 1:
        return value, _sigmoid(outputs) - targets[:, None]
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return value, shifted / shifted.sum(axis=1, keepdims=True) - np.eye(outputs.shape[1])[targets]


def _logit_loss(logits: Floats, events: Labels) -> float:
    return float(losses(logits[:, None], events, is_number=False).sum())


def _sigmoid(logits: Floats) -> Floats:
    # Both sides without an overflow.
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small))
