"""Bounds on the length of a client's update that keeps to the study. Longer ones are refused, or scaled down to them.

One local step adds g = (S + Z)/B to the update. ‖S‖ ≤ R is the settings' sum radius, Z the client's own noise, and B
the expected batch size. An honest update passes its bound with probability at most 10⁻¹² a round.
docs/private-training.md derives every bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from study_protocol.study.robustness import LOG_ODDS
from study_protocol.study.settings import StudySettings
from study_protocol.study.training import LocalOptimiser, Training
from study_protocol.wire.tensor_files import ReadableTensors, pieces
from study_protocol.wire.tensors import Array

# The noise's grid beside its deviation, and what clipping and summing in float32 add to the sensitivity, both rounded
# up (private_learning/training/noise.py).
_GRID, _SUMMING = 2.0**-22, 2.0**-6
_FLOAT32 = 2.0**-24


def noise_length(coordinates: int, log_odds: float = LOG_ODDS) -> float:
    """Return a length that `coordinates` standard normal numbers pass with probability at most e^-log_odds.

    Laurent & Massart 2000, Lemma 1. Of the law it only needs E exp(t‖Z‖²) ≤ (1 − 2t)^(−d/2). The discrete Gaussian has
    it. E exp(⟨u, Z⟩) ≤ exp(‖u‖²s²/2) (Canonne, Kamath & Steinke 2020, Fact 18) is taken at u = √(2t) G with G normal,
    and then the mean over G.
    """
    return math.sqrt(coordinates + 2 * math.sqrt(coordinates * log_odds) + 2 * log_odds)


def longest_update(
    settings: StudySettings, coordinates: int, round_number: int, *, anchor: float, clients: int = 1
) -> float:
    """Return a bound on the L2 norm of the sum of the updates of `clients` clients in round `round_number`.

    Args:
        settings: at the clip norm of the round.
        coordinates: numbers in an update.
        anchor: `anchor` of what the round starts from.
    """
    privacy, training = settings.privacy, settings.training
    if (noise := privacy.noise_of_updates(coordinates)) is not None:
        # Of the noised sum: updates alone are held to the clip norm.
        std = noise.std_of(clients) if privacy.rules.divides_noise else noise.std
        return clients * noise.sensitivity + std * noise_length(coordinates)
    mean, std = _one_step(settings, coordinates)
    if training.algorithm == "fedsgd":
        longest = clients * mean + math.sqrt(clients) * std * noise_length(coordinates)
        return (longest + clients * anchor) * (1 + 8 * _FLOAT32)
    steps = training.local_steps
    rate = training.learning_rate * training.learning_rate_schedule.share(round_number, settings.rounds)
    if training.local_optimiser.name == "adam":
        reached = mean + std * noise_length(coordinates, LOG_ODDS + math.log(clients * steps))
        longest = clients * _adam_length(training, rate, reached, math.sqrt(coordinates))
    else:
        weights = np.abs(_weights(training, rate))
        noise = math.sqrt(clients * float(weights @ weights)) * std * noise_length(coordinates)
        longest = rate * (clients * mean * float(weights.sum()) + noise)
    # Every step rounds weights and momenta to float32, and so does taking the difference. A proximal term rounds twice.
    rounded = (steps * (3 if training.proximal else 1) + 8) * _FLOAT32
    return longest * (1 + 2 * rounded) + clients * rounded * (anchor + longest)


def has_anchor(settings: StudySettings) -> bool:
    """Return whether `longest_update` depends on the model that a round starts from."""
    if settings.privacy.rules.clips_updates:
        return False
    return settings.training.algorithm == "fedavg" or settings.training.clipping_centre != "zero"


def anchor(settings: StudySettings, weights: ReadableTensors, previous: ReadableTensors | None) -> float:
    """Return the norm of the weights, whose rounding is in a difference of weights.

    If gradients are sent, it is the norm of the centre of clipping, which is added to a gradient.

    previous: the weights released before these, None where there are none.
    """
    if settings.training.algorithm == "fedavg":
        return norm(_square(weights.piece(*place)) for place in pieces(weights.spec))
    if previous is None:
        return 0.0
    moved = (previous.piece(*place).astype(np.float64) - weights.piece(*place) for place in pieces(weights.spec))
    return norm(_square(piece) for piece in moved) / settings.training.optimiser.learning_rate


def norm(squares: Iterable[float]) -> float:
    """Return the L2 norm of a vector out of the squared norms of its parts."""
    return math.sqrt(math.fsum(squares))


def _square(values: Array) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def _one_step(settings: StudySettings, coordinates: int) -> tuple[float, float]:
    """Return (bound on the sum before its noise, deviation of the noise), both divided by the expected batch size."""
    privacy, radius = settings.privacy, settings.sum_radius
    if radius is None:
        raise ValueError(f"scheme {privacy.scheme} has no noise of its clients")
    sensitivity = privacy.clip_norm
    if (bits := privacy.clip_bits) is not None:
        sensitivity, radius = bits.joint_norm, math.hypot(radius, bits.max_sum)
    grid = privacy.noise_multiplier * sensitivity * _GRID * math.sqrt(coordinates)
    std = privacy.noise_multiplier * (sensitivity * (1 + _SUMMING) + grid)
    return (radius + grid) / privacy.expected_batch_size, std / privacy.expected_batch_size


def _weights(training: Training, rate: float) -> NDArray[np.float64]:
    """Return (steps,) how often each step's gradient is in the whole way, in learning rates.

    That is 1, or (1 − β^(K−j+1))/(1 − β) under momentum. A proximal term µ makes it (1 − rate·µ)^(K−j), and under
    momentum the response of the linear recursion to one gradient, which may change its sign.
    """
    optimiser, steps, pull = training.local_optimiser, training.local_steps, rate * training.proximal
    if optimiser.name == "plain":
        return (1 - pull) ** np.arange(steps - 1.0, -1.0, -1.0)
    if not pull:
        return (1 - optimiser.momentum ** np.arange(steps, 0.0, -1.0)) / (1 - optimiser.momentum)
    response, moved, velocity = np.empty(steps), 0.0, 0.0
    for step in range(steps):
        velocity = optimiser.momentum * velocity + (1.0 if step == 0 else -pull * moved)
        moved += velocity
        response[step] = moved
    return response[::-1]


def _adam_length(training: Training, rate: float, reached: float, root: float) -> float:
    """Return a bound on one client's whole way under Adam.

    Args:
        rate: the learning rate of the round.
        reached: bound on the norm of each step's gradient, without the proximal term.
        root: √ of the number of coordinates.
    """
    optimiser, way = training.local_optimiser, 0.0
    if not training.proximal:
        each = np.minimum(_adam_steps(optimiser, training.local_steps) * root, reached / optimiser.stability)
        return rate * float(each.sum())
    for largest in _adam_steps(optimiser, training.local_steps).tolist():
        way += rate * min(largest * root, (reached + training.proximal * way) / optimiser.stability)
    return way


def _adam_steps(optimiser: LocalOptimiser, steps: int) -> NDArray[np.float64]:
    """Return (steps,) the largest move of one coordinate in each step of Adam, in learning rates. It may be infinite.

    With bias corrections |m̂|/√v̂ ≤ (1 − β₁)/(1 − β₁ᵏ) · √((1 − β₂ᵏ)/(1 − β₂) · Σ_{i<k} (β₁²/β₂)ⁱ) for all gradients,
    by the inequality of Cauchy and Schwarz.
    """
    first, second, k = optimiser.momentum, optimiser.second_momentum, np.arange(1.0, steps + 1)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.float64(first * first) / second if first else np.float64(0)
        summed = np.cumsum(ratio ** (k - 1))
        bound = (1 - first) / (1 - first**k) * np.sqrt((1 - second**k) / (1 - second) * summed)
    return np.where(np.isfinite(bound), bound, np.inf)
