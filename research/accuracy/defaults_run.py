"""Private logistic regression for `research.accuracy.defaults`: many settings at once, on the same records, draws and
noise.

The mechanism is that of a study with fedsgd and the plain optimiser in which everybody takes part: every record's
gradient clipped, each hospital's noise added, the sum divided by public numbers. The noise is continuous here, and its
size is what the accounts say for the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from accounting.budget.solve import least_noise
from accounting.plan.limits import Enforcement, LimitPlan
from accounting.plan.plan import Plan
from accounting.units import Definition, Level, Observer
from research.accuracy.defaults_data import SiteSplit
from research.accuracy.defaults_tables import Floats, Labels

Singles = npt.NDArray[np.float32]
AVERAGES = ("none", "tail", "exponential")
TAIL, DECAY = 0.5, 0.9
DELTA = 1e-5
# Under masks one of the hospitals may work with the coordinator.
COLLUDERS = 1


@dataclass(frozen=True)
class DefaultsStudy:
    """Who takes part under which limit. scheme: parallel or sequential (masked, all hospitals needed).

    enforcement  the rule by which the limit is kept
    """

    scheme: str
    epsilon: float
    hospitals: int
    enforcement: Enforcement = "renyi-order"

    @property
    def counted(self) -> int:
        """Hospitals whose noise is counted on."""
        return self.hospitals - COLLUDERS if self.scheme == "sequential" else 1


@dataclass(frozen=True)
class DefaultsSetting:
    """One way of training.

    travel  T · η · C: how far the model would go if every clipped gradient were as long as the clip norm and all agreed
    """

    sampling_rate: float
    rounds: int
    clip_norm: float
    travel: float

    @property
    def learning_rate(self) -> float:
        return self.travel / self.rounds / self.clip_norm


@cache
def noise_multiplier(
    scheme: str,
    records: int,
    epsilon: float,
    sampling_rate: float,
    rounds: int,
    enforcement: Enforcement = "renyi-order",
) -> float:
    """Of one hospital's noise: the least with which so many rounds keep the limit."""
    limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, epsilon, DELTA, None, enforcement=enforcement)
    plan = Plan(
        scheme="sequential" if scheme == "sequential" else "parallel",
        limits=(limit,),
        clip_norm=1.0,
        client_clip_norm=None,
        noise_multiplier=1.0,
        honest_survivors=records,
        sampling_rate=sampling_rate,
        steps_per_round=1,
        max_steps=rounds,
        classical_order=8.0,
        bayesian=None,
        disclosure="at-end",
        release=None,
        observer=Observer.COORDINATOR,
    )
    return least_noise(plan).noise_multiplier


def pooled_noise(study: DefaultsStudy, setting: DefaultsSetting) -> float:
    """Of all hospitals' noise together, as a multiple of the clip norm."""
    numbers = (study.epsilon, setting.sampling_rate, setting.rounds, study.enforcement)
    noise = noise_multiplier(study.scheme, study.counted, *numbers)
    return noise * study.hospitals**0.5


def accuracies(
    split: SiteSplit, classes: int, study: DefaultsStudy, settings: Sequence[DefaultsSetting], seed: int
) -> Floats:
    """On the test records, shape (settings, averages). Settings that share rate and rounds run together.

    Raises ValueError: they do not.
    """
    rounds, rate = settings[0].rounds, settings[0].sampling_rate
    if any((setting.rounds, setting.sampling_rate) != (rounds, rate) for setting in settings):
        raise ValueError("settings that run together have one number of rounds and one sampling rate")
    random = np.random.default_rng([seed, 3])
    inputs = split.inputs.astype(np.float32)
    norms = np.linalg.norm(inputs, axis=1).astype(np.float32)
    outputs = 1 if classes == 2 else classes
    clips = np.array([setting.clip_norm for setting in settings], np.float32)
    rates = np.array([setting.learning_rate for setting in settings], np.float32) / np.float32(rate * len(inputs))
    noise = np.float32(pooled_noise(study, settings[0])) * clips
    weights: Singles = np.zeros((inputs.shape[1], outputs, len(settings)), np.float32)
    means: dict[str, Singles] = {name: np.zeros_like(weights) for name in AVERAGES}
    tail = -(-rounds // 2)
    for step in range(rounds):
        batch = slice(None) if rate == 1 else np.flatnonzero(random.random(len(inputs)) < rate)
        total = _clipped_sum(inputs[batch], split.labels[batch], norms[batch], weights, clips)
        draw = random.standard_normal(weights.shape[:2]).astype(np.float32)
        weights = (weights - rates * (total + draw[:, :, None] * noise)).astype(np.float32)
        means["none"] = weights
        means["exponential"] = (DECAY * means["exponential"] + (1 - DECAY) * weights).astype(np.float32)
        if step >= rounds - tail:
            means["tail"] += weights / np.float32(tail)
    accuracies = [_right(split.test_inputs.astype(np.float32), split.test_labels, means[name]) for name in AVERAGES]
    return np.stack(accuracies, axis=1)


def _clipped_sum(inputs: Singles, labels: Labels, norms: Singles, weights: Singles, clips: Singles) -> Singles:
    """Sum of the records' gradients, each clipped; (p, outputs, settings)."""
    residuals = _residuals(inputs, labels, weights)
    lengths = np.abs(residuals[:, 0]) if residuals.shape[1] == 1 else np.linalg.norm(residuals, axis=1)
    residuals *= np.minimum(1, clips / np.maximum(lengths * norms[:, None], np.float32(1e-12)))[:, None, :]
    return (inputs.T @ residuals.reshape(len(inputs), -1)).reshape(weights.shape)


def _residuals(inputs: Singles, labels: Labels, weights: Singles) -> Singles:
    """Probabilities less the truth, (n, outputs, settings)."""
    scores = (inputs @ weights.reshape(len(weights), -1)).reshape(len(inputs), *weights.shape[1:])
    if scores.shape[1] == 1:
        np.clip(scores, -60, 60, out=scores)
        return (1 / (1 + np.exp(-scores)) - labels[:, None, None]).astype(np.float32)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(labels)), labels] -= 1
    return scores


def _right(inputs: Singles, labels: Labels, weights: Singles) -> Floats:
    """Share of records whose class is named, per setting."""
    scores = (inputs @ weights.reshape(len(weights), -1)).reshape(len(inputs), *weights.shape[1:])
    predicted = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return (predicted == labels[:, None]).mean(axis=0)
