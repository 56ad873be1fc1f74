"""The torch model of Bayesian logistic regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients.losses import SeparateLoss
from private_learning.gradients.score_variance import ScoreVariance

# Means of the logistic loss are then within 1e-5 for scores with a standard deviation of up to 2, and 1e-3 up to 5.
NODES = 32
# Of a score's variance: below it the derivative of a root would drown in rounding.
_LEAST_VARIANCE = 1e-10


@dataclass(frozen=True)
class ExpectedLoss(SeparateLoss):
    """(batch,) E_q of the logistic loss. outputs: (batch, 2), mean and variance of each score."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, weights = quadrature(outputs)
        return (functional.softplus(scores) - targets.to(scores).view(-1, 1) * scores) @ weights


class NormalScore(nn.Module):
    """(n, features) to (n, 2): mean and variance of a record's score.

    mean.weight    (1, features + 1): means of the weights, the constant's last, 0 at the start
    spread.weight  (1, features + 1): logarithms of their standard deviations
    """

    def __init__(self, features: int, log_std: float) -> None:
        super().__init__()
        self.mean = nn.Linear(features + 1, 1, bias=False)
        nn.init.zeros_(self.mean.weight)
        self.spread = ScoreVariance(features + 1, log_std)

    def forward(self, inputs: Tensor) -> Tensor:
        # The constant is one more input, and has a mean and a spread as the others have.
        extended = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
        return torch.cat([self.mean(extended), self.spread(extended)], dim=1)


def quadrature(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """(n, NODES) scores and (NODES,) weights: a mean over q is their weighted sum."""
    nodes, weights = (outputs.new_tensor(values) for values in _rule())
    return outputs[:, :1] + outputs[:, 1:].clamp_min(_LEAST_VARIANCE).sqrt() * nodes, weights


@cache
def _rule() -> tuple[list[float], list[float]]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes.tolist(), (weights / math.sqrt(2 * math.pi)).tolist()
