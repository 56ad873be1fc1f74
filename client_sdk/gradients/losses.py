"""Per-record losses whose gradient with respect to the outputs is known in closed form.

Given one of these, a model that ends in its only trainable layer, a linear one, needs no autograd at all.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) cross-entropies of (batch, classes) scores and integer classes."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) logistic losses of (batch, 1) scores and targets in [0, 1], given as (batch,) or (batch, 1)."""
    return functional.binary_cross_entropy_with_logits(
        outputs.squeeze(1), targets.to(outputs).view(-1), reduction="none"
    )


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) squared distances of (batch, k) predictions to (batch, k) targets, or (batch,) ones when k = 1."""
    return (outputs - targets.to(outputs).view_as(outputs)).square().sum(1)


def _of_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    found = torch.softmax(outputs, 1)
    return found.scatter_add_(1, targets.unsqueeze(1), found.new_full((), -1.0).expand(len(found), 1))


def _of_logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.sigmoid(outputs).sub_(targets.to(outputs).view(-1, 1))


def _of_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets.to(outputs).view_as(outputs)).mul_(2.0)


SIGNALS: dict[object, Callable[[Tensor, Tensor], Tensor]] = {
    cross_entropy: _of_cross_entropy,
    logistic: _of_logistic,
    squared_error: _of_squared_error,
}
