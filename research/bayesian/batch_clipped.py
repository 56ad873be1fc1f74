"""The papers' own training of MNIST: the *batch's* gradient is clipped and noised (thesis, 5.5.2), and its two prices.

Batches of 1,024 of 60,000, C = 1, σ = .1, noise of standard deviation 2Cσ, 20 epochs. A batch's clipped gradient may
turn around with one record: it moves by 2C at most, and the noise multiplier is σ. The papers read C. The model is
linear on oriented gradients, a hundred times as long as elsewhere, so that a step has the length C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from private_learning.gradients import ClippedSum
from private_learning.training.gradients import poisson_batch
from private_learning.training.noise import add_noise
from study_protocol.randomness.source import SeededSource

Floats = npt.NDArray[np.float64]
SAMPLE = 200
_SEED_OFFSET = 66_000_000


@dataclass(frozen=True)
class BatchClippedRecipe:
    """As the thesis says, and what it does not: learning rate and the inputs' length.

    noise_std  of the noise in the batch's gradient, 2Cσ
    """

    batch: float = 1024
    clip_norm: float = 1.0
    noise_std: float = 0.2
    epochs: int = 20
    learning_rate: float = 0.01
    length: float = 100.0

    def steps(self, records: int) -> int:
        """Of all epochs."""
        return round(self.epochs * records / self.batch)


def fitted(inputs: Tensor, labels: Tensor, recipe: BatchClippedRecipe, seed: int) -> tuple[Tensor, Floats]:
    """(10, d) weights for inputs of norm `length`, and how far records of a sample would move each step's result.

    inputs: (n, d) of norm 1. labels: (n,). The first SAMPLE records do not train. The distances: (steps, SAMPLE).
    """
    source = SeededSource(_SEED_OFFSET + seed, allow_insecure=True)
    scaled, targets = recipe.length * inputs, nn.functional.one_hot(labels, 10).float()
    strangers, scaled = (scaled[:SAMPLE], targets[:SAMPLE]), scaled[SAMPLE:]
    targets = targets[SAMPLE:]
    weights, distances = torch.zeros(10, inputs.shape[1]), list[Floats]()
    for _ in range(recipe.steps(len(inputs))):
        batch = torch.from_numpy(poisson_batch(len(scaled), recipe.batch / len(inputs), source=source))
        residuals = torch.softmax(scaled[batch] @ weights.T, dim=1) - targets[batch]
        slope = residuals.T @ scaled[batch] / recipe.batch
        distances.append(moved(slope, weights, *strangers, recipe))
        hidden = ClippedSum({"mean": clipped(slope, recipe.clip_norm)}, torch.zeros(0), 2 * recipe.clip_norm)
        # Over its true sensitivity 2C the noise of 2Cσ is σ times.
        multiplier = recipe.noise_std / (2 * recipe.clip_norm)
        weights = (
            weights
            - recipe.learning_rate * add_noise(hidden, noise_multiplier=multiplier, source=source).gradients["mean"]
        )
    return weights, np.array(distances)


def clipped(slope: Tensor, clip_norm: float) -> Tensor:
    """The whole gradient at L2 norm clip_norm at most."""
    return slope * min(1.0, clip_norm / max(float(slope.norm()), 1e-30))


def moved(slope: Tensor, weights: Tensor, inputs: Tensor, targets: Tensor, recipe: BatchClippedRecipe) -> Floats:
    """(n,) ‖clip(g + g_x/B) − clip(g)‖ of each record x that may come in addition, rounded up, and at most 2C.

    Around g = ‖g‖u: with f = clip factor of g + h, the difference is (f − f₀)g + f h, whose norm follows from ⟨g, h⟩.
    """
    residuals = (torch.softmax(inputs @ weights.T, dim=1) - targets).double() / recipe.batch
    lengths = residuals.norm(dim=1) * inputs.double().norm(dim=1)
    along = (residuals * (inputs.double() @ slope.double().T)).sum(1)
    size = float(slope.double().norm())
    together = (size**2 + 2 * along + lengths**2).clamp_min(0).sqrt()
    before = min(1.0, recipe.clip_norm / max(size, 1e-300))
    after = (recipe.clip_norm / together.clamp_min(1e-300)).clamp_max(1.0)
    squares = ((after - before) * size) ** 2 + 2 * (after - before) * after * along + (after * lengths) ** 2
    norms = squares.clamp_min(0).sqrt().numpy() * (1 + 1e-6) + 1e-7 * recipe.clip_norm
    return np.minimum(norms, 2 * recipe.clip_norm)


def accuracy(weights: Tensor, inputs: Tensor, labels: Tensor) -> float:
    """Share of records whose class is named."""
    right = (inputs @ weights.T).argmax(1) == labels
    return float(right.double().mean())


def finite(value: float) -> float | None:
    """None for an infinity, which JSON does not hold."""
    return value if math.isfinite(value) else None
