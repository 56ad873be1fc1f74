"""The variance of a score under independent normal weights, as a layer whose per-record gradient is known."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients.layers import Layer, LayerCache, LinearLayer


class ScoreVariance(nn.Module):
    """(n, k) inputs to (n, 1) variances Σ_j x_j² e^{2ρ_j}: of x·w, w_j independent with standard deviation e^{ρ_j}.

    weight: (1, k), the ρ_j.
    """

    def __init__(self, features: int, log_std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, features), log_std))

    def forward(self, inputs: Tensor) -> Tensor:
        return _variance(inputs, self.weight)


class ScoreVarianceLayer(LinearLayer):
    """∂v/∂ρ_j = 2 x_j² e^{2ρ_j}: the gradients are those of a linear layer with these numbers as inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return _variance(x, self.parameter("weight"))

    # A linear layer's would be wrong: the variance is no linear function of the inputs.
    signal = Layer.signal

    def per_record(self, a: Tensor, g: Tensor) -> dict[str, Tensor]:
        return super().per_record(self._features(a), g)

    def squares(self, a: Tensor, g: Tensor) -> tuple[dict[str, Tensor], LayerCache]:
        return super().squares(self._features(a), g)

    def weighted_sum(self, a: Tensor, g: Tensor, weights: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        return super().weighted_sum(self._features(a), g, weights, cache)

    def inner(self, a: Tensor, g: Tensor, centre: dict[str, Tensor], cache: LayerCache) -> dict[str, Tensor]:
        return super().inner(self._features(a), g, centre, cache)

    def _features(self, a: Tensor) -> Tensor:
        return 2 * a.square() * torch.exp(2 * self.parameter("weight")).to(a.dtype)


def _variance(inputs: Tensor, log_stds: Tensor) -> Tensor:
    return functional.linear(inputs.square(), torch.exp(2 * log_stds))
