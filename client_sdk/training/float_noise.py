"""Floating-point Gaussian noise, for where the exact integers of noise.py cannot go: a mitigation, not a proof.

Each sample is half the sum of four Box–Muller samples, so that the low bits no longer tell which sum they were added
to without inverting four of them at once (Holohan, Braghin 2021, "Secure Random Sampling in Differential Privacy",
section 5). The bits come from the same source as the exact noise, on CUDA as well: they are drawn on the host and
turned into noise on the tensor's own device. Nothing switches to this by itself.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from client_sdk.gradients.clipping import ClippedSum, stop_if_not_finite
from client_sdk.protocol.randomness.source import RandomSource
from client_sdk.training.noise import NoisySum, positive

MITIGATION = "float Gaussian, half the sum of four samples: mitigation only (Holohan, Braghin 2021)"
_SAMPLES = 4


def add_float_noise(clipped: ClippedSum, *, noise_multiplier: float, source: RandomSource) -> NoisySum:
    """Add float64 Gaussian noise of standard deviation noise_multiplier × clip_norm to the clipped sum.

    Guarantee: none at the level of bits; `law` says so, `resolution` is 0 (no grid) and `sampling_error` is 1, the
    trivial bound. Raises ValueError for a bad multiplier, NonFiniteError for a sum that is not finite.
    """
    std = positive("noise_multiplier", noise_multiplier) * clipped.clip_norm
    stop_if_not_finite({f"the clipped sum of parameter {name!r}": value for name, value in clipped.gradients.items()})
    noised = {
        name: (value.double() + std * normal(value.numel(), source, value.device).view(value.shape)).to(value.dtype)
        for name, value in clipped.gradients.items()
    }
    return NoisySum(noised, std, clipped.clip_norm, 0.0, 1.0, MITIGATION)


def normal(size: int, source: RandomSource, device: torch.device) -> Tensor:
    """(size,) float64 standard normal samples."""
    total = torch.zeros(size, dtype=torch.float64, device=device)
    for _ in range(_SAMPLES):
        radius, angle = _uniform(size, source, device), _uniform(size, source, device)
        total += (-2.0 * radius.log_()).sqrt_() * (2.0 * math.pi * angle).cos_()
    return total / math.sqrt(_SAMPLES)


def _uniform(size: int, source: RandomSource, device: torch.device) -> Tensor:
    """(size,) uniform on (0, 1], in steps of 2⁻⁵³."""
    words = (source.words(size, np.uint64) >> np.uint64(11)).astype(np.float64)
    return torch.as_tensor(words).to(device).add_(1.0).mul_(2.0**-53)
