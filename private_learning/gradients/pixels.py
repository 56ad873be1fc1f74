"""The loss of a record whose every pixel has a class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from private_learning.gradients.losses import SeparateLoss

# Added above and below the line: finite where a class is nowhere.
_SMOOTHING = 1.0


@dataclass(frozen=True)
class PixelLoss(SeparateLoss):
    """Mean over a record's labelled pixels of w_y (−log p_y), and `dice` times the record's soft Dice loss.

    The latter is 1 less the mean over the classes of (2 Σ p y + 1) / (Σ p + Σ y + 1), with sums over the record's
    labelled pixels. No other record is in them: each record has its own sums.

    Source: Milletari et al. 2016, "V-Net", section 3, with plain sums below the line.

    outputs: (batch, classes, height, width) scores.
    targets: (batch, height, width) integers, below 0 where a pixel is not labelled.
    weights: one for each class. Without weights all are 1.
    """

    weights: tuple[float, ...] = ()
    dice: float = 0.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        labelled = targets >= 0
        filled = torch.where(labelled, targets, 0)
        logs = torch.log_softmax(outputs, 1)
        each = -logs.gather(1, filled.unsqueeze(1)).squeeze(1)
        if self.weights:
            each = each * outputs.new_tensor(self.weights)[filled]
        counts = labelled.flatten(1).sum(1).clamp_min(1)
        losses = torch.where(labelled, each, 0.0).flatten(1).sum(1) / counts
        return losses if self.dice == 0 else losses + self.dice * (1 - _overlaps(logs.exp(), filled, labelled))


def _overlaps(p: Tensor, classes: Tensor, labelled: Tensor) -> Tensor:
    """Return (batch,) means over the classes of their soft Dice."""
    numbers = torch.arange(p.shape[1], device=p.device).view(1, -1, 1, 1)
    is_counted = labelled.unsqueeze(1)
    indicators = ((classes.unsqueeze(1) == numbers) & is_counted).to(p)
    p = torch.where(is_counted, p, 0.0)
    intersections, sums = (values.flatten(2).sum(2) for values in (p * indicators, p + indicators))
    return ((2 * intersections + _SMOOTHING) / (sums + _SMOOTHING)).mean(1)
