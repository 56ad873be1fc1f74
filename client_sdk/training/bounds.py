"""Bounds on whole updates and whole sums; records are bounded in `client_sdk.gradients`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from client_sdk.errors import TrainingStopped
from client_sdk.gradients import ClippedSum
from client_sdk.protocol.wire.tensors import Array

# The coordinator recomputes the norm in float64; this leaves room for the rounding to float32.
_CLIP_SAFETY = 1 - 2.0**-22


def clipped(update: Mapping[str, Array], clip_norm: float) -> dict[str, Array]:
    """The update scaled down to L2 norm clip_norm over all parameters together, if it is longer.

    Raises:
        TrainingStopped: NaN or an infinity: a comparison with NaN would let it pass unclipped.
    """
    norm = norm_of(update)
    if not math.isfinite(norm):
        raise TrainingStopped("the update")
    factor = min(1.0, clip_norm * _CLIP_SAFETY / norm) if norm > 0 else 1.0
    return {name: (array.astype(np.float64) * factor).astype(np.float32) for name, array in update.items()}


def projected(part: ClippedSum, radius: float) -> tuple[ClippedSum, float]:
    """The sum moved to the nearest point of L2 norm at most `radius`, and that point's norm, rounded up.

    Projection on a ball never moves two points apart, so the sum's sensitivity to one record stays what it was.

    Raises:
        TrainingStopped: NaN or an infinity.
    """
    norm = math.sqrt(sum(float(value.double().square().sum()) for value in part.gradients.values()))
    if not math.isfinite(norm):
        raise TrainingStopped("the clipped sum")
    if norm <= radius * _CLIP_SAFETY:
        return part, norm * (1 + 2.0**-40)
    factor = radius * _CLIP_SAFETY / norm
    return replace(part, gradients={name: value * factor for name, value in part.gradients.items()}), radius


def norm_of(update: Mapping[str, Array]) -> float:
    """L2 norm over all parameters together, in float64."""
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in update.values()))
