"""A hospital's update, clipped as a whole, on a grid, with exact discrete Gaussian noise.

As for gradients (`private_learning.training.noise`): the rounding is counted in the sensitivity, the noise is integers,
and the conversion back to floats is post-processing. This one needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import RandomSource

Arrays = Mapping[str, NDArray[np.floating]]
Real = NDArray[np.float64]
# The grid is this much finer than the noise (`accounting.mechanisms.gaussian_squares` counts on it).
_GRID_BITS = 22
# Numbers of so many grid steps, 256 of them: their sum has less than 53 bits.
_EXACT_BITS = 44
# Covers the float64 roundings of a norm, and of what it multiplies.
_NORM_UP, _UP = 1 + 2.0**-30, 1 + 2.0**-50


@dataclass(frozen=True)
class UpdateNoise:
    """The public facts of an update's noise, fixed before the update.

    clip_norm    L2 norm of a clipped update at most
    spacing      of the grid, a power of two
    sensitivity  L2 norm of what an update adds to a sum of zeros at most, with its rounding to the grid
    std          standard deviation of the noise on each number. std / sensitivity is at least the noise multiplier
    """

    clip_norm: float
    spacing: float
    sensitivity: float
    std: float

    @classmethod
    def calibrated(cls, clip_norm: float, coordinates: int, noise_multiplier: float) -> UpdateNoise:
        """Return the noise of updates with so many numbers."""
        # From public numbers alone. A grid that depended on the update would tell of it.
        spacing = 2.0 ** (math.floor(math.log2(noise_multiplier * clip_norm)) - _GRID_BITS)
        # Half a grid step in each number, doubled for the roundings here.
        sensitivity = (clip_norm + spacing * math.sqrt(coordinates)) * _UP
        return cls(clip_norm, spacing, sensitivity, noise_multiplier * sensitivity * _UP)

    def add_to(self, update: Real, source: RandomSource) -> Real:
        """Clip an update, shape (n,), and return it with its noise."""
        units = np.rint(clipped(update, self.clip_norm) / self.spacing).astype(np.int64)
        units += sampler(self.std / self.spacing * _UP).sample(update.size, source)
        # A power of two: exact.
        return units.astype(np.float64) * self.spacing


def clipped(update: Real, clip_norm: float) -> Real:
    """Return the update, shape (n,), scaled to an L2 norm of at most clip_norm.

    An update with NaN or an infinity becomes 0. It is not refused, because a refusal would tell of the records.
    """
    largest = float(np.abs(update).max(initial=0.0))
    if not math.isfinite(largest) or largest == 0:
        return np.zeros_like(update)
    # In units of the largest number, no square overflows.
    direction = update / largest
    norm = float(np.linalg.norm(direction)) * _NORM_UP
    return direction * min(largest, clip_norm / norm)


def fits_grid(before: Arrays, noise: UpdateNoise) -> bool:
    """Return whether the arrays, rounded to the noise's grid, add up without an error over 256 hospitals."""
    return bool((np.abs(_flat(before)) <= noise.spacing * 2.0**_EXACT_BITS).all())


def noised_arrays(
    before: Arrays, after: Arrays, noise: UpdateNoise, source: RandomSource, *, on_grid: bool = False
) -> dict[str, NDArray[np.floating]]:
    """Return the arrays of `before` plus the clipped and noised update, in their own shapes and types.

    Args:
        before: the received arrays, which are public.
        after: the trained arrays, with the same names and shapes.
        on_grid: float64 on the noise's grid. Sums of several hospitals are then exact, so that they depend on the sum
            of updates and noises alone. Rounded to another type, each would show a little of its own update.
    """
    # One clip for all arrays together: the norm of the whole update is what one hospital changes.
    update = _flat(after) - _flat(before)
    start_at = np.rint(_flat(before) / noise.spacing) * noise.spacing if on_grid else _flat(before)
    moved = start_at + noise.add_to(update, source)
    arrays, start = dict[str, NDArray[np.floating]](), 0
    for name, values in before.items():
        # A number beyond the type becomes its infinity: post-processing.
        with np.errstate(over="ignore"):
            kind = np.float64 if on_grid else values.dtype
            arrays[name] = moved[start : start + values.size].reshape(values.shape).astype(kind)
        start += values.size
    return arrays


def _flat(arrays: Arrays) -> Real:
    with np.errstate(invalid="ignore"):
        return np.concatenate([values.reshape(-1).astype(np.float64) for values in arrays.values()] or [np.zeros(0)])
