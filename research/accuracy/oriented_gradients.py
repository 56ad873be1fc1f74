"""`private_learning.tasks.oriented_gradients` of many grey images at once."""

from __future__ import annotations

import torch
from torch import Tensor

from private_learning.tasks.oriented_gradients import OrientedGradients

_CHUNK = 5000


def oriented_gradients(images: Tensor) -> Tensor:
    """(n, height, width) images of 0..255 to (n, 8 · height/4 · width/4) float32 features of L2 norm 1.

    Raises ValueError when the sides are not multiples of 4.
    """
    if images.ndim != 3 or images.shape[1] % 4 or images.shape[2] % 4:
        raise ValueError(f"images must have shape (n, 4a, 4b), got {tuple(images.shape)}")
    features = OrientedGradients()
    return torch.cat([features(part[:, None]) for part in images.split(_CHUNK)])
