"""Gaussian noise for a clipped sum: fixed-point integers, exact discrete Gaussian, back to floats.

Float Gaussian samplers leak through their low bits (Mironov 2012); here the sum is rounded to a public grid, the
rounding is counted in the sensitivity, and integer noise of the discrete Gaussian law is added. Turning the noised
integers back into floats is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client_sdk.protocol.discrete_gaussian import sampler
from .gradients.clipping import ClippedSum
from .gradients.errors import NonFiniteError
from client_sdk.protocol.randomness import InsecureSource, RandomSource, SecureSource, SeededSource

__all__ = ["InsecureSource", "NoisySum", "RandomSource", "SecureSource", "SeededSource", "add_noise", "gaussian_noise"]

# The grid is this much finer than the noise; the rounding of n numbers then adds 2^-14 to the sensitivity.
_GRID_BITS = 14
_EXACT = 2.0**53


@dataclass(frozen=True)
class NoisySum:
    """A clipped sum with its noise: safe to release at the price of (noise_multiplier, sampling rate).

    gradients: parameter name -> noised sum, in the parameter's dtype.
    noise_std: standard deviation of the noise added to each coordinate.
    sensitivity: clip norm plus the most that rounding can add; noise_std / sensitivity ≥ noise_multiplier.
    resolution: grid spacing.
    sampling_error: bound on the total variation distance to exact noise over all coordinates; add it to δ.
    """

    gradients: dict[str, Tensor]
    noise_std: float
    sensitivity: float
    resolution: float
    sampling_error: float


def positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return float(value)


def grid(scale: float, coordinates: int) -> float:
    """The largest power of two ≤ scale · 2^-14 / √coordinates: a public grid spacing."""
    return 2.0 ** math.floor(math.log2(scale) - _GRID_BITS - math.log2(max(coordinates, 1)) / 2)


def gaussian_noise(size: int, std: float, *, source: RandomSource) -> NDArray[np.float64]:
    """(size,) discrete Gaussian noise of standard deviation std on a grid about std · 2^-24 apart."""
    positive("std", std)
    if size < 0:
        raise ValueError(f"size must be at least 0, got {size}")
    spacing = 2.0 ** (math.floor(math.log2(std)) - 24)
    return sampler(std / spacing).sample(size, source) * spacing


def add_noise(
    clipped: ClippedSum, *, noise_multiplier: float, source: RandomSource, resolution: float | None = None
) -> NoisySum:
    """Round the clipped sum to the grid and add exact discrete Gaussian noise.

    noise_multiplier: noise standard deviation over sensitivity, > 0.
    resolution: grid spacing; the default adds at most 2^-14 of the clip norm to the sensitivity.

    Guarantee: noise_std ≥ noise_multiplier × sensitivity, where sensitivity = clip_norm + resolution · √coordinates
    bounds how far two neighbouring sums lie apart after rounding (each coordinate moves by at most one spacing more).
    Raises ValueError for a bad multiplier or resolution, NonFiniteError for a sum that is not finite, OverflowError
    when the sum does not fit the grid.
    """
    multiplier = positive("noise_multiplier", noise_multiplier)
    coordinates = sum(value.numel() for value in clipped.gradients.values())
    scale = clipped.clip_norm * min(1.0, multiplier)
    spacing = grid(scale, coordinates) if resolution is None else positive("resolution", resolution)
    sensitivity = math.nextafter(clipped.clip_norm + spacing * math.sqrt(coordinates) * (1 + 2.0**-50), math.inf)
    law = sampler(math.nextafter(multiplier * sensitivity / spacing * (1 + 2.0**-50), math.inf))
    noised = {
        name: _noised(name, value, spacing, law.sample(value.numel(), source))
        for name, value in clipped.gradients.items()
    }
    return NoisySum(noised, law.std * spacing, sensitivity, spacing, law.sampling_error * coordinates)


def _noised(name: str, value: Tensor, spacing: float, noise: NDArray[np.int64]) -> Tensor:
    units = value.detach().to("cpu", torch.float64) / spacing
    if not bool(torch.isfinite(units).all()):
        raise NonFiniteError(f"the clipped sum of parameter {name!r}")
    if units.numel() and float(units.abs().max()) >= _EXACT / 2:
        raise OverflowError(f"the clipped sum of parameter {name!r} does not fit the grid; raise the resolution")
    integers = units.round_().to(torch.int64).add_(torch.from_numpy(noise).view(value.shape))
    return (integers.double() * spacing).to(value)
