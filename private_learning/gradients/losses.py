"""Losses with public numbers in them, and the gradient of any loss in the outputs, which closed forms need.

Every loss here is a sum of one term per record. Its gradient in the outputs is finite for finite outputs. It is bounded
by public numbers, except that of the squared error, which grows with the error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from private_learning.gradients.layers import SIGNALS, cross_entropy, logistic, squared_error

Loss = Callable[[Tensor, Tensor], Tensor]
# exp(−_FAR) is 0 in every precision.
_FAR = 1e3
# Scores at which a hazard goes on as its tangent: no patient has e³⁰ events per horizon, and the squares are finite.
STEEPEST = 30.0


class SeparateLoss(ABC):
    """A loss that is built in and known to be a sum of one term per record.

    of_rows: the loss of single rows that it is made of, where a record has several. None where it has one.
    of_each_row: the same as it is run, on rows that do not see each other.
    """

    of_rows: Loss | None = None
    of_each_row: Loss | None = None

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return (batch,) losses."""


class KnownLoss(SeparateLoss):
    """A loss whose gradient is known. Frozen data classes: two with the same numbers are the same loss."""

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return (batch,) losses of (batch, k) outputs."""

    @abstractmethod
    def signal(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return (batch, k) gradients of the losses in the outputs."""


def signal_of(loss: object) -> Loss | None:
    """Return signal(outputs, targets), as of `KnownLoss`, or None where it is not known."""
    if isinstance(loss, KnownLoss):
        return loss.signal if is_built_in(loss) else None
    # By identity: a loss of a user's own may have no hash.
    return next((signal for built_in, signal in SIGNALS.items() if built_in is loss), None)


def is_built_in(loss: object) -> bool:
    """Return whether the loss is one of this package's own, which keep records apart.

    Exact types, as for layers: a subclass that is defined elsewhere may compute something else.
    """
    if isinstance(loss, SeparateLoss):
        return type(loss).__module__.partition(".")[0] == __name__.partition(".")[0]
    return any(built_in is loss for built_in in SIGNALS)


@dataclass(frozen=True)
class ClassLoss(KnownLoss):
    """w_y (1 − p_y)^γ (−log p_y) with p_y the probability of the record's class.

    γ = 0 is the cross-entropy. Above 0, records that are right already count less. This is the focal loss (Lin et al.
    2017, "Focal Loss for Dense Object Detection", equations 4 and 5).

    Outputs (batch, 1) are scores of class 1, wider ones scores of the classes. targets: (batch,) integers.

    gamma: 0, or at least 1. In between, the gradient of a record that is wholly right has no limit.
    weights: one for each class. Without weights all are 1.
    """

    gamma: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_p, rest = self._log_probability(outputs, targets)
        losses = -log_p if self.gamma == 0 else -(rest**self.gamma) * log_p
        return losses if not self.weights else losses * self._weights(outputs, targets)

    def signal(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_p, rest = self._log_probability(outputs, targets)
        # d/dp_y of the loss times p_y. The rest of dp_y/dz is e_y − p.
        slope = torch.full_like(log_p, -1.0)
        if self.gamma != 0:
            log_p = log_p.clamp_min(-_FAR)
            slope = self.gamma * rest ** (self.gamma - 1) * log_p.exp() * log_p - rest**self.gamma
        if self.weights:
            slope = slope * self._weights(outputs, targets)
        if outputs.shape[1] == 1:
            return (slope * rest * _signs(outputs, targets)).unsqueeze(1)
        hit = functional.one_hot(targets, outputs.shape[1]).to(outputs)
        return slope.unsqueeze(1) * (hit - torch.softmax(outputs, 1))

    def _log_probability(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (batch,) log p_y, which may be −∞, and 1 − p_y without cancellation.

        The product 0 · ∞ is in no gradient of them.
        """
        if outputs.shape[1] == 1:
            scores = outputs.squeeze(1) * _signs(outputs, targets)
            return functional.logsigmoid(scores), torch.sigmoid(-scores.clamp(-_FAR, _FAR))
        log_p = torch.log_softmax(outputs, 1).gather(1, targets.unsqueeze(1)).squeeze(1)
        return log_p, -torch.expm1(log_p.clamp_min(-_FAR))

    def _weights(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.new_tensor(self.weights)[targets]


def _signs(outputs: Tensor, targets: Tensor) -> Tensor:
    return targets.to(outputs) * 2 - 1


def class_loss(classes: int, gamma: float = 0.0, weights: tuple[float, ...] = ()) -> Loss:
    """Return the loss of a classifier with one output for two classes and one for each otherwise.

    gamma, weights: as of `ClassLoss`.
    """
    if gamma == 0 and not weights:
        return logistic if classes == 2 else cross_entropy
    return ClassLoss(gamma, weights)


@dataclass(frozen=True)
class Huber(KnownLoss):
    """Squared error up to `delta`, growing like its tangent beyond.

    It is twice Huber's loss (1964, "Robust Estimation of a Location Parameter"), so that it is the squared error where
    no error is larger.

    outputs: (batch, k). targets: (batch, k), or (batch,) when k = 1. delta: above 0, in the outputs' unit.
    """

    delta: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors = outputs - targets.to(outputs).view_as(outputs)
        near = errors.clamp(-self.delta, self.delta)
        return (near * (2 * errors - near)).sum(1)

    def signal(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return 2 * (outputs - targets.to(outputs).view_as(outputs)).clamp(-self.delta, self.delta)


def number_loss(delta: float | None) -> Loss:
    """Return the squared error, or Huber's loss with a delta."""
    return squared_error if delta is None else Huber(delta)


@dataclass(frozen=True)
class LabelsLoss(KnownLoss):
    """Sum over a record's labels of their logistic losses. outputs: (batch, k) scores.

    targets: (batch, k) of 0 and 1, NaN where a label is not known. Such a label adds zero to loss and gradient.
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        is_labelled, filled = _labelled(outputs, targets)
        each = functional.binary_cross_entropy_with_logits(outputs, filled, reduction="none")
        return torch.where(is_labelled, each, 0.0).sum(1)

    def signal(self, outputs: Tensor, targets: Tensor) -> Tensor:
        is_labelled, filled = _labelled(outputs, targets)
        return torch.where(is_labelled, torch.sigmoid(outputs) - filled, 0.0)


def _labelled(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    is_labelled = ~torch.isnan(targets)
    # NaN that is only left out behind would still be in the gradient.
    return is_labelled, torch.where(is_labelled, targets, 0.0).to(outputs)


@dataclass(frozen=True)
class _OverTime(KnownLoss):
    """Minus the logarithm of a record's likelihood, out of one score for each interval between cuts.

    cuts: where the intervals (0, c₁], (c₁, c₂], … end, rising. The last is 1, the horizon.

    targets: (batch, 2) time in [0, 1] and 1 for an event or 0 for censored. Time 1 with 0 stands for still free of the
    event.
    """

    cuts: tuple[float, ...]

    def _died(self, cuts: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (batch, intervals) booleans: the interval ended before the time, and the event was in it."""
        time, event = targets[:, :1], targets[:, 1:] == 1
        before = time > cuts
        place = torch.arange(len(self.cuts), device=targets.device)
        return before, event & (place == before.sum(1, keepdim=True))


@dataclass(frozen=True)
class DiscreteHazard(_OverTime):
    """Logistic hazard: σ(score) is the chance of the event in an interval, given that there was none before.

    The likelihood is that of a coin for every interval that the record was at risk in. A record that is censored within
    an interval was not at risk in it.

    Sources: Cox 1972, section 8. Gensheimer & Narasimhan 2019, "A scalable discrete-time survival model for neural
    networks", equation 2.
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        at_risk, died = self._coins(outputs, targets)
        each = functional.binary_cross_entropy_with_logits(outputs, died, reduction="none")
        return torch.where(at_risk, each, 0.0).sum(1)

    def signal(self, outputs: Tensor, targets: Tensor) -> Tensor:
        at_risk, died = self._coins(outputs, targets)
        return torch.where(at_risk, torch.sigmoid(outputs) - died, 0.0)

    def _coins(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        # In the targets' precision, as the times were rounded to it.
        cuts = targets.new_tensor(self.cuts)
        before, died = self._died(cuts, targets)
        lived = torch.where(targets[:, 1:] == 1, before, targets[:, :1] >= cuts)
        return lived | died, died.to(outputs)


@dataclass(frozen=True)
class PiecewiseExponential(_OverTime):
    """exp(score) is the hazard in an interval, in events per horizon. Beyond STEEPEST its tangent takes over.

    −log likelihood = Σ_k exposure_k exp(score_k) − score of the interval of the event, as of Poisson counts with the
    exposures as offsets.

    Source: Friedman 1982, "Piecewise exponential models for survival data with covariates".
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        exposure, died = self._exposed(outputs, targets)
        # Not the product with 0 alone: an unused score may be too large for it.
        scores = torch.where(exposure > 0, outputs, 0.0)
        near = scores.clamp_max(STEEPEST)
        return (exposure * near.exp() * (1 + scores - near) - died * outputs).sum(1)

    def signal(self, outputs: Tensor, targets: Tensor) -> Tensor:
        exposure, died = self._exposed(outputs, targets)
        return exposure * outputs.clamp_max(STEEPEST).exp() - died

    def _exposed(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (batch, intervals) exposures and events."""
        cuts = targets.new_tensor(self.cuts)
        _, died = self._died(cuts, targets)
        starts = torch.cat([cuts.new_zeros(1), cuts[:-1]])
        within = (targets[:, :1] - starts).clamp_min(0.0).minimum(cuts - starts)
        return within.to(outputs), died.to(outputs)
