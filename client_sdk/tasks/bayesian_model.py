"""The torch model of Bayesian logistic regression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from client_sdk.gradients.losses import SeparateLoss
from client_sdk.gradients.spread import Spread
from client_sdk.tasks.bayesian import quadrature


@dataclass(frozen=True)
class ExpectedLoss(SeparateLoss):
    """(batch,) E_q of the logistic loss. outputs: (batch, 2), mean and variance of each score."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores, weights = quadrature(outputs)
        return (functional.softplus(scores) - targets.to(scores).view(-1, 1) * scores) @ weights


class NormalScore(nn.Module):
    """(n, features) to (n, 2): mean and variance of a record's score.

    mean.weight    (1, features + 1): means of the weights, the constant's last; 0 at the start
    spread.weight  (1, features + 1): logarithms of their standard deviations
    """

    def __init__(self, features: int, log_std: float) -> None:
        super().__init__()
        self.mean = nn.Linear(features + 1, 1, bias=False)
        nn.init.zeros_(self.mean.weight)
        self.spread = Spread(features + 1, log_std)

    def forward(self, inputs: Tensor) -> Tensor:
        # The constant is one more input, and has a mean and a spread as the others have.
        seen = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
        return torch.cat([self.mean(seen), self.spread(seen)], dim=1)
