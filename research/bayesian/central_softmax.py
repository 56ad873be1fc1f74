"""Private linear classifiers by one data holder, full batches, several seeds at once: closed forms on one matrix.

Inputs have norm 1 or less, so that a record's gradient (p − y) xᵀ has norm ‖p − y‖ ‖x‖. Sums are noised by the SDK's
own sampler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from private_learning.gradients import ClippedSum
from private_learning.training.noise import add_noise
from study_protocol.randomness.source import RandomSource, SeededSource

# Features have norm 1 up to float32 rounding; a released sum holds them a little below.
_WITHIN = 1 - 2.0**-14
_ROWS = 10_000
SAMPLE = 2000
Floats = npt.NDArray[np.float64]
_SEED_OFFSET = 55_000_000


@dataclass(frozen=True)
class SoftmaxRecipe:
    """Public before a run. steps: of the whole data; one more releases the features' mean where `centred`.

    averaged  the weights of the last so many steps are averaged: post-processing
    """

    steps: int
    clip_norm: float
    learning_rate: float
    momentum: float
    averaged: int = 1
    centred: bool = True

    @property
    def charged(self) -> int:
        """Gaussian mechanisms with one noise multiplier."""
        return self.steps + self.centred


@dataclass(frozen=True)
class LinearSoftmax:
    """means: (seeds, d), taken off the inputs before they are scaled to norm 1. weights: (seeds, classes, d)."""

    means: Tensor
    weights: Tensor

    def accuracies(self, inputs: Tensor, labels: Tensor) -> list[float]:
        """One for each seed."""
        accuracies: list[float] = []
        for mean, weights in zip(self.means, self.weights, strict=True):
            right = (centred(inputs, mean) @ weights.T).argmax(1) == labels
            accuracies.append(float(right.double().mean()))
        return accuracies


def fitted(
    inputs: Tensor,
    labels: Tensor,
    recipe: SoftmaxRecipe,
    noise_multiplier: float | None,
    seeds: Sequence[int],
    watched: list[Floats] | None = None,
) -> LinearSoftmax:
    """The recipe's steps for every seed; noise_multiplier None: without noise.

    watched  takes, for every seed, the clipped norms of the first SAMPLE records at each gradient: (steps, SAMPLE)

    inputs: (n, d) float32. labels: (n,) of ten classes.
    """
    models = [_run_once(inputs, labels, recipe, noise_multiplier, seed, watched) for seed in seeds]
    return LinearSoftmax(torch.stack([mean for mean, _ in models]), torch.stack([weights for _, weights in models]))


def _run_once(
    inputs: Tensor,
    labels: Tensor,
    recipe: SoftmaxRecipe,
    noise_multiplier: float | None,
    seed: int,
    watched: list[Floats] | None,
) -> tuple[Tensor, Tensor]:
    source = SeededSource(_SEED_OFFSET + seed, allow_insecure=True)
    mean = torch.zeros(inputs.shape[1])
    if recipe.centred:
        mean = _noised(inputs.sum(0) * _WITHIN, 1.0, noise_multiplier, source) / len(inputs)
    centred_inputs, targets = centred(inputs, mean), nn.functional.one_hot(labels, 10).float()
    weights, step, iterates = torch.zeros(10, inputs.shape[1]), torch.zeros(10, inputs.shape[1]), list[Tensor]()
    # The mean's own step: everybody moves it by the whole of the noise's unit, the clip norm here.
    seen_norms = [np.full(SAMPLE, recipe.clip_norm)] if recipe.centred else []
    for _ in range(recipe.steps):
        if watched is not None:
            norms = record_norms(centred_inputs[:SAMPLE], targets[:SAMPLE], weights).clamp_max(recipe.clip_norm)
            seen_norms.append(norms.double().numpy())
        total = clipped_sum(centred_inputs, targets, weights, recipe.clip_norm)
        gradient = _noised(total, recipe.clip_norm, noise_multiplier, source) / len(inputs)
        step = recipe.momentum * step - recipe.learning_rate * gradient
        weights = weights + step
        iterates = [*iterates, weights][-recipe.averaged :]
    if watched is not None:
        watched.append(np.array(seen_norms))
    return mean, torch.stack(iterates).mean(0)


def clipped_sum(scaled: Tensor, targets: Tensor, weights: Tensor, clip_norm: float) -> Tensor:
    """(classes, d) Σ of the records' gradients of the cross-entropy, each clipped to L2 norm clip_norm."""
    total = torch.zeros_like(weights)
    for x, y in zip(scaled.split(_ROWS), targets.split(_ROWS), strict=True):
        residuals = torch.softmax(x @ weights.T, dim=1) - y
        norms = residuals.norm(dim=1) * x.norm(dim=1)
        residuals *= (clip_norm * _WITHIN / norms.clamp_min(1e-30)).clamp_max(1.0)[:, None]
        total += residuals.T @ x
    return total


def record_norms(scaled: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """(n,) norms of the records' gradients."""
    return (torch.softmax(scaled @ weights.T, dim=1) - targets).norm(dim=1) * scaled.norm(dim=1)


def centred(inputs: Tensor, mean: Tensor) -> Tensor:
    """Inputs less a mean, at norm 1 again."""
    return nn.functional.normalize(inputs - mean, dim=1)


def _noised(total: Tensor, clip_norm: float, noise_multiplier: float | None, source: RandomSource) -> Tensor:
    if noise_multiplier is None:
        return total
    sum_of = ClippedSum({"sum": total.clone()}, torch.zeros(0), clip_norm)
    return add_noise(sum_of, noise_multiplier=noise_multiplier, source=source).gradients["sum"]
