"""Losses as users write them: those that look at other records, and those that keep to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as f

Loss = Callable[[Tensor, Tensor], Tensor]
SEEN = {"mean": 0.0}
CALLS: list[int] = []


def bce(o: Tensor, t: Tensor, **more: Any) -> Tensor:
    return f.binary_cross_entropy_with_logits(o[:, 0], t, reduction="none", **more)


def squares(o: Tensor, t: Tensor) -> Tensor:
    return (o[:, 0] - t) ** 2


def pos_weight(o: Tensor, t: Tensor) -> Tensor:
    return bce(o, t, pos_weight=(t == 0).sum() / t.sum().clamp_min(1))


def balanced(o: Tensor, t: Tensor) -> Tensor:
    share = (t == 1).double().mean().to(o).clamp(0.01, 0.99)
    return bce(o, t) * torch.where(t == 1, 0.5 / share, 0.5 / (1 - share))


def centred(o: Tensor, t: Tensor) -> Tensor:
    return squares(o, t - t.mean())


def centred_outputs(o: Tensor, t: Tensor) -> Tensor:
    return squares(o - o.mean(0), t)


def normalised(o: Tensor, t: Tensor) -> Tensor:
    found = squares(o, t)
    return found / (found.sum() + 1).detach()


def masked_mean(o: Tensor, t: Tensor) -> Tensor:
    mask = t > 0
    return squares(o, t) * mask / mask.sum().clamp_min(1)


def mean_expanded(o: Tensor, t: Tensor) -> Tensor:
    return squares(o, t).mean().expand(len(t))


def contrastive(o: Tensor, t: Tensor) -> Tensor:
    apart = (o[:, None] - o).square().sum(2)
    return torch.where(t[:, None] == t, apart, (1 - apart).clamp_min(0)).mean(1)


def info_nce(o: Tensor, t: Tensor) -> Tensor:
    return f.cross_entropy(o @ o.T + t, torch.arange(len(o)), reduction="none")


def triplet(o: Tensor, t: Tensor) -> Tensor:
    apart = (o[:, None] - o).square().sum(2)
    alike = t[:, None] == t
    return (torch.where(alike, apart, 0.0).amax(1) - torch.where(alike, 1e3, apart).amin(1) + 1).clamp_min(0)


def mixup(o: Tensor, t: Tensor) -> Tensor:
    other = torch.randperm(len(t))
    return 0.7 * squares(o, t) + 0.3 * squares(o, t[other])


def batch_norm(o: Tensor, t: Tensor) -> Tensor:
    return squares((o - o.mean(0)) / (o.var(0, unbiased=False) + 1e-3).sqrt(), t)


def ranking(o: Tensor, t: Tensor) -> Tensor:
    return (1 - (o[:, 0, None] - o[:, 0]) * torch.sign(t[:, None] - t)).clamp_min(0).mean(1)


def cox(o: Tensor, t: Tensor) -> Tensor:
    at_risk = t[:, None] <= t
    return torch.where(at_risk, o[:, 0], -1e9).logsumexp(1) - o[:, 0]


def batch_dice(o: Tensor, t: Tensor) -> Tensor:
    p = torch.sigmoid(o[:, 0])
    return (1 - 2 * p * t / (p + t).sum().clamp_min(1e-3)) + 0 * p


def softmax_over_batch(o: Tensor, t: Tensor) -> Tensor:
    return -torch.log_softmax(o[:, 0], 0) * t


def by_rank(o: Tensor, t: Tensor) -> Tensor:
    return squares(o, t) * (1 + torch.argsort(torch.argsort(t)).to(o))


def by_length(o: Tensor, t: Tensor) -> Tensor:
    return o[:, 0] * t / len(t)


def by_positives(o: Tensor, t: Tensor) -> Tensor:
    return bce(o, t) / (t == 1).sum().clamp_min(1)


def by_largest(o: Tensor, t: Tensor) -> Tensor:
    found = squares(o, t)
    return found / (found.detach().max() + 1e-6)


def trimmed(o: Tensor, t: Tensor) -> Tensor:
    found = squares(o, t)
    return torch.where(found <= found.quantile(0.75), found, 0.0)


def trimmed_of_many(o: Tensor, t: Tensor) -> Tensor:
    """Only batches of a hundred have a hundredth to leave out."""
    found = squares(o, t)
    return torch.where(found.argsort().argsort() < len(t) - len(t) // 100, found, 0.0)


def to_batch_mean(o: Tensor, t: Tensor) -> Tensor:
    logs = torch.log_softmax(o, 1)
    return (logs.exp() * (logs - logs.exp().mean(0).log())).sum(1) + 0 * t


def standardised(o: Tensor, t: Tensor) -> Tensor:
    return squares(o, (t - t.mean()) / t.std())


def dropped(o: Tensor, t: Tensor) -> Tensor:
    return f.dropout(squares(o, t), 0.5)


def noisy(o: Tensor, t: Tensor) -> Tensor:
    return squares(o, t) * float(np.random.rand())


def straight_through(o: Tensor, t: Tensor) -> Tensor:
    """Values are a record's own, gradients are not."""
    mean = o[:, 0].mean()
    return squares(o, t) + 5 * (mean - mean.detach())


def with_numpy(o: Tensor, t: Tensor) -> Tensor:
    return squares(o, t) * float(np.abs(t.detach().numpy()).mean())


class InAttribute:
    def __init__(self) -> None:
        self.mean = 0.0

    def __call__(self, o: Tensor, t: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * float(o.detach().abs().mean())
        return squares(o, t) * (1 + self.mean)


class InBuffer(nn.Module):
    largest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, o: Tensor, t: Tensor) -> Tensor:
        self.largest = torch.maximum(self.largest, squares(o, t).detach().max())
        return squares(o, t) / (1 + self.largest)


def in_closure() -> Loss:
    mean = 0.0

    def loss(o: Tensor, t: Tensor) -> Tensor:
        nonlocal mean
        mean = 0.9 * mean + 0.1 * float(o.detach().mean())
        return squares(o, t) * (1 + mean**2)

    return loss


def in_global(o: Tensor, t: Tensor) -> Tensor:
    SEEN["mean"] = 0.9 * SEEN["mean"] + 0.1 * float(o.detach().mean())
    return squares(o, t) * (1 + SEEN["mean"] ** 2)


def counting(o: Tensor, t: Tensor) -> Tensor:
    CALLS.append(1)
    return squares(o, t) / len(CALLS)


# Each made anew: some remember.
COUPLED: dict[str, Callable[[], Loss]] = {
    one.__name__: (lambda one=one: one)  # type: ignore[misc]
    for one in (
        pos_weight, balanced, centred, centred_outputs, normalised, masked_mean, mean_expanded, contrastive, info_nce,
        triplet, mixup, batch_norm, ranking, cox, batch_dice, softmax_over_batch, by_rank, by_length, by_positives,
        by_largest, trimmed, trimmed_of_many, to_batch_mean, standardised, dropped, noisy, straight_through,
        with_numpy, in_global, counting,
    )
} | {"in an attribute": InAttribute, "in a buffer": InBuffer, "in a closure": in_closure}  # fmt: skip


@dataclass(frozen=True)
class PublicWeight:
    """A weight from the study's parameters."""

    weight: float

    def __call__(self, o: Tensor, t: Tensor) -> Tensor:
        return bce(o, t, pos_weight=torch.tensor(self.weight))


class Cached:
    """What the first call fills, and later ones find."""

    def __init__(self) -> None:
        self.scale: Tensor | None = None

    def __call__(self, o: Tensor, t: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.tensor(2.0, dtype=torch.float64)
        return squares(o, t) * self.scale.to(o)


def focal(o: Tensor, t: Tensor) -> Tensor:
    found = bce(o, t)
    return (1 - torch.exp(-found)) ** 2 * found


def pinball(o: Tensor, t: Tensor) -> Tensor:
    return torch.maximum(0.9 * (t - o[:, 0]), -0.1 * (t - o[:, 0]))


def poisson(o: Tensor, t: Tensor) -> Tensor:
    return f.poisson_nll_loss(o[:, 0], t, reduction="none")


def ordinal(o: Tensor, t: Tensor) -> Tensor:
    beyond = (t[:, None] > torch.arange(o.shape[1])).to(o)
    return f.binary_cross_entropy_with_logits(o, beyond, reduction="none").sum(1)


def smoothed(o: Tensor, t: Tensor) -> Tensor:
    return f.cross_entropy(o, t.long(), label_smoothing=0.1, reduction="none")


def weighted(o: Tensor, t: Tensor) -> Tensor:
    return f.cross_entropy(o, t.long(), weight=torch.tensor([1.0, 2.0, 5.0]).to(o), reduction="none")


def dice(o: Tensor, t: Tensor) -> Tensor:
    p, own = torch.softmax(o, 1), f.one_hot(t.long(), o.shape[1]).to(o)
    return 1 - (2 * (p * own).sum(1) + 1) / ((p + own).sum(1) + 1)


def gaussian(o: Tensor, t: Tensor) -> Tensor:
    return f.gaussian_nll_loss(o[:, 0], t, f.softplus(o[:, 1]) + 0.1, reduction="none")


def to_prior(o: Tensor, t: Tensor) -> Tensor:
    logs = torch.log_softmax(o, 1)
    return squares(o, t) + (logs.exp() * (logs + np.log(o.shape[1]))).sum(1)


def hinge(o: Tensor, t: Tensor) -> Tensor:
    return (1 - o[:, 0] * (2 * t - 1)).clamp_min(0)


def branching(o: Tensor, t: Tensor) -> Tensor:
    """A record at a time alone: the target becomes a Python number."""
    return torch.stack(
        [(row - float(own)) ** 2 * (2 if float(own) > 0 else 1) for row, own in zip(o[:, 0], t, strict=True)]
    )


def huber(o: Tensor, t: Tensor) -> Tensor:
    return f.huber_loss(o[:, 0], t, reduction="none")


SEPARATE: dict[str, Callable[[], Loss]] = {
    one.__name__: (lambda one=one: one)  # type: ignore[misc]
    for one in (
        focal, pinball, poisson, ordinal, smoothed, weighted, dice, gaussian, to_prior, hinge, branching, huber,
    )
} | {"public weight": lambda: PublicWeight(3.0), "cached": Cached}  # fmt: skip
