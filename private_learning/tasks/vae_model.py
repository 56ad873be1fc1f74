"""The torch model and the loss of a variational autoencoder. No layer mixes the records of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients.losses import SeparateLoss

# Logarithms of variances lie within ± this, so that no record's density is beyond the numbers.
_MOST_LOG_VARIANCE = 6.0


class ConditionalAutoencoder(nn.Module):
    """(n, channels, height, width) in −1 … 1 to (n, 2·latent + 2·pixels).

    In order: means and logarithms of variances of the code, scores of the drawn pixels, and the image itself. A code is
    drawn in training mode. In evaluation mode it is the mean.

    layers: shapes of weights by name. shape: of an image.
    """

    def __init__(self, layers: Mapping[str, tuple[int, ...]], shape: tuple[int, ...]) -> None:
        super().__init__()
        (narrow, channels), (wide, _) = layers["encoder.0"][:2], layers["encoder.2"][:2]
        doubled, flat = layers["encoder.5"]
        self.shape = shape
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, narrow, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(narrow, wide, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(flat, doubled),
        )
        self.spread = nn.Linear(doubled // 2, flat)
        self.middle = nn.Conv2d(wide, narrow, 3, padding=1)
        self.last = nn.Conv2d(narrow, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        mean, raw = self.encoder(x).chunk(2, dim=1)
        log_variance = _MOST_LOG_VARIANCE * torch.tanh(raw / _MOST_LOG_VARIANCE)
        code = mean + torch.exp(log_variance / 2) * torch.randn_like(mean) if self.training else mean
        return torch.cat([mean, log_variance, self.decoded(code).flatten(1), x.flatten(1)], dim=1)

    def decoded(self, codes: Tensor) -> Tensor:
        """Return (n, channels, height, width) scores of pixels, of (n, latent) codes."""
        height, width = self.shape[1:]
        small = torch.tanh(self.spread(codes)).reshape(-1, self.middle.in_channels, -(-height // 4), -(-width // 4))
        half = functional.interpolate(small, size=(-(-height // 2), -(-width // 2)), mode="nearest")
        whole = functional.interpolate(torch.tanh(self.middle(half)), size=(height, width), mode="nearest")
        return self.last(whole)


@dataclass(frozen=True)
class EvidenceLoss(SeparateLoss):
    """Minus the evidence lower bound per pixel, with the prior N(centre·e_y, I) of a record's class y.

    −log p(x | z) is the cross-entropy of pixels in 0 … 1. KL(q ‖ p) = ½ Σ (σ² + (μ − centre·e_y)² − 1 − ln σ²).

    Source: Kingma & Welling 2014, "Auto-Encoding Variational Bayes", equation 10 and appendix B.

    outputs: as of `ConditionalAutoencoder`. targets: (batch,) integers.
    """

    latent: int
    centre: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        mean, log_variance = outputs[:, : self.latent], outputs[:, self.latent : 2 * self.latent]
        scores, images = outputs[:, 2 * self.latent :].chunk(2, dim=1)
        errors = functional.binary_cross_entropy_with_logits(scores, (images + 1) / 2, reduction="none").sum(1)
        distances = (mean - self.centre * functional.one_hot(targets, self.latent).to(mean)).square()
        divergences = (log_variance.exp() + distances - 1 - log_variance).sum(1) / 2
        return (errors + divergences) / math.prod(scores.shape[1:])
