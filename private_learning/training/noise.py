"""Gaussian noise for a clipped sum: fixed-point integers, exact discrete Gaussian, back to floats.

Float Gaussian samplers leak through their low bits (Mironov 2012). Here the sum is rounded to a public grid, the
rounding is counted in the sensitivity, and integer noise of the discrete Gaussian law is added. The conversion of the
noised integers to floats is post-processing.

`add_float_noise` is for cases that the exact integers do not cover: a mitigation, not a proof. Each sample is half the
sum of four Box–Muller samples. The low bits then no longer tell which sum they were added to without inverting four
samples at once (Holohan, Braghin 2021, "Secure Random Sampling in Differential Privacy", section 5). The bits come from
the same source as the exact noise, on CUDA as well. They are drawn on the host and turned into noise on the tensor's
own device. No code switches to this by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from private_learning.gradients.clipping import ClippedSum, stop_if_not_finite
from private_learning.gradients.errors import NonFiniteError
from private_learning.training.noise_ahead import Pieces
from study_protocol.randomness.discrete_gaussian import CHUNK, DiscreteGaussian, sampler
from study_protocol.randomness.source import InsecureSource, RandomSource, SecureSource, SeededSource

__all__ = ["InsecureSource", "NoisySum", "RandomSource", "SecureSource", "SeededSource", "add_noise"]
# The grid is this much finer than the noise: fine enough that rounding a million numbers adds 0.03 % of the noise to
# the sensitivity, coarse enough that one noise sample takes 32 random bits.
_GRID_BITS = 22
_EXACT_UNITS = 2.0**51
# Below so many grid units a value and its noise fit 32-bit integers together.
_SMALL_UNITS = 2.0**30
# Covers the few float64 roundings of what it multiplies.
_UP = 1 + 2.0**-50
EXACT = "exact discrete Gaussian on a fixed-point grid"
MITIGATION = "float Gaussian, half the sum of four samples: mitigation only (Holohan, Braghin 2021)"
_SAMPLES = 4


@dataclass(frozen=True, repr=False)
class NoisySum:
    """A clipped sum with its noise: safe to release at the price of (noise_multiplier, sampling rate).

    gradients: parameter name -> noised sum, in the dtype of the clipped sum.
    noise_std: standard deviation of the noise added to each coordinate.
    sensitivity: clip norm plus the most that roundings can add. noise_std / sensitivity ≥ noise_multiplier.
    resolution: grid spacing.
    sampling_error: bound on the total variation distance to exact noise over all coordinates, to be added to δ.
    law: the kind of noise, in words, for the record.
    """

    gradients: dict[str, Tensor]
    noise_std: float
    sensitivity: float
    resolution: float
    sampling_error: float
    law: str


@dataclass(frozen=True)
class GridNoise:
    """Public facts of a sum's noise before the sum: the grid, the sensitivity with rounding, the exact law.

    coordinates: numbers in the sum. spacing: of the grid, a power of two. rounding: of floats that were added, most.
    """

    clip_norm: float
    coordinates: int
    rounding: float
    spacing: float
    sensitivity: float
    law: DiscreteGaussian

    @classmethod
    def calibrated(
        cls,
        clip_norm: float,
        coordinates: int,
        *,
        noise_multiplier: float,
        resolution: float | None = None,
        rounding: float = 0.0,
    ) -> Self:
        """Return the noise for sums of one clip norm, size and rounding.

        Arguments, guarantee and errors as `add_noise`.
        """
        multiplier = positive("noise_multiplier", noise_multiplier)
        spacing = grid(multiplier * clip_norm) if resolution is None else positive("resolution", resolution)
        if math.frexp(spacing)[0] != 0.5:
            raise ValueError(f"resolution must be a power of two, got {resolution!r}")
        sensitivity = clip_norm + rounding + spacing * math.sqrt(coordinates)
        law = sampler(multiplier * (sensitivity * _UP) / spacing * _UP)
        return cls(clip_norm, coordinates, rounding, spacing, sensitivity * _UP, law)

    def added_to(self, clipped: ClippedSum, source: RandomSource) -> NoisySum:
        """Round the clipped sum to the grid and add the noise.

        Raises ValueError for a sum of another clip norm or size, NonFiniteError and OverflowError as `add_noise`.
        """
        return self.completed(clipped, self.law.chunks(self.coordinates, source))

    def completed(self, clipped: ClippedSum, pieces: Pieces) -> NoisySum:
        """Do the same as `added_to` with integers of `law` drawn before by `NoiseAhead`: (start, integers) in order."""
        size = sum(value.numel() for value in clipped.gradients.values())
        if (clipped.clip_norm, size) != (self.clip_norm, self.coordinates) or clipped.rounding > self.rounding:
            raise ValueError("the sum has another clip norm, size or rounding than its noise was calibrated for")
        noised = _noised(clipped.gradients, self.spacing, self.law.dtype, pieces)
        error = self.law.sampling_error * size
        return NoisySum(noised, self.law.std * self.spacing, self.sensitivity, self.spacing, error, EXACT)


def add_noise(
    clipped: ClippedSum, *, noise_multiplier: float, source: RandomSource, resolution: float | None = None
) -> NoisySum:
    """Round the clipped sum to the grid and add exact discrete Gaussian noise.

    noise_multiplier: noise standard deviation over sensitivity, > 0.
    resolution: grid spacing, a power of two. By default about 2⁻²² of the noise.

    Guarantee: noise_std ≥ noise_multiplier × sensitivity. Here sensitivity = clip_norm + clipped.rounding + resolution
    · √coordinates bounds how far two neighbouring sums lie apart on the grid. (Each coordinate moves by at most one
    spacing more.)

    Raises:
        ValueError: a bad multiplier or resolution.
        NonFiniteError: a sum that is not finite.
        OverflowError: the sum does not fit the grid.
    """
    size = sum(value.numel() for value in clipped.gradients.values())
    noise = GridNoise.calibrated(
        clipped.clip_norm, size, noise_multiplier=noise_multiplier, resolution=resolution, rounding=clipped.rounding
    )
    return noise.added_to(clipped, source)


def add_float_noise(clipped: ClippedSum, *, noise_multiplier: float, source: RandomSource) -> NoisySum:
    """Add float64 Gaussian noise of standard deviation noise_multiplier × clip_norm to the clipped sum.

    Guarantee: none at the level of bits. The field `law` says so. `resolution` is 0 (no grid) and `sampling_error` is
        1,
    the trivial bound.

    Raises:
        ValueError: a bad multiplier.
        NonFiniteError: a sum that is not finite.
    """
    std = positive("noise_multiplier", noise_multiplier) * clipped.clip_norm
    stop_if_not_finite({f"the clipped sum of parameter {name!r}": value for name, value in clipped.gradients.items()})
    noised = {
        name: (value.double() + std * normal(value.numel(), source, value.device).view(value.shape)).to(value.dtype)
        for name, value in clipped.gradients.items()
    }
    return NoisySum(noised, std, clipped.clip_norm, 0.0, 1.0, MITIGATION)


def positive(name: str, value: float) -> float:
    """Return the value, finite and > 0. Raises ValueError otherwise."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return float(value)


def grid(noise_std: float) -> float:
    """Return the default grid spacing: a power of two between noise_std · 2⁻²³ and noise_std · 2⁻²²."""
    return 2.0 ** (math.floor(math.log2(noise_std)) - _GRID_BITS)


def _noised(
    gradients: Mapping[str, Tensor], spacing: float, dtype: type[np.signedinteger], pieces: Pieces
) -> dict[str, Tensor]:
    values = list(gradients.values())
    kind = torch.float64 if any(value.dtype == torch.float64 for value in values) else torch.float32
    # On the host, also for a model on a GPU: the noise never comes from a device's generator.
    flat = torch.cat([value.reshape(-1) for value in values]).detach().to("cpu", kind).numpy()
    largest = max(-float(flat.min(initial=0.0)), float(flat.max(initial=0.0))) / spacing
    # Written so that NaN does not pass.
    if not largest < _EXACT_UNITS:
        raise _misfit(gradients)
    small = largest < _SMALL_UNITS and dtype == np.int32
    scratch, covered = np.empty(min(CHUNK, len(flat)), np.int32 if small else np.int64), 0
    for start, noise in pieces:
        part, noised = flat[start : start + len(noise)], scratch[: len(noise)]
        # The spacing is a power of two: division by it and multiplication with it are exact.
        part *= 1.0 / spacing
        np.copyto(noised, np.rint(part, out=part), casting="unsafe")
        noised += noise
        covered += len(noise)
        # From here on only the noised integers are read: what rounding does to them is post-processing.
        part[:] = noised
        part *= spacing
    if covered != len(flat):
        raise RuntimeError(f"noise for {covered} of {len(flat)} numbers: nothing may be released")
    result, start = dict[str, Tensor](), 0
    for name, value in gradients.items():
        end = start + value.numel()
        result[name], start = torch.as_tensor(flat[start:end]).view(value.shape).to(value), end
    return result


def _misfit(gradients: Mapping[str, Tensor]) -> Exception:
    for name, value in gradients.items():
        if not bool(torch.isfinite(value).all()):
            return NonFiniteError(f"the clipped sum of parameter {name!r}")
    return OverflowError("the clipped sum does not fit the grid: choose a larger resolution")


def normal(size: int, source: RandomSource, device: torch.device) -> Tensor:
    """Return (size,) float64 standard normal samples."""
    total = torch.zeros(size, dtype=torch.float64, device=device)
    for _ in range(_SAMPLES):
        radius, angle = _uniform(size, source, device), _uniform(size, source, device)
        total += (-2.0 * radius.log_()).sqrt_() * (2.0 * math.pi * angle).cos_()
    return total / math.sqrt(_SAMPLES)


def _uniform(size: int, source: RandomSource, device: torch.device) -> Tensor:
    """Return (size,) numbers uniform on (0, 1], in steps of 2⁻⁵³."""
    words = (source.words(size, np.uint64) >> np.uint64(11)).astype(np.float64)
    # Never 0, whose logarithm is infinite.
    return torch.as_tensor(words).to(device).add_(1.0).mul_(2.0**-53)
