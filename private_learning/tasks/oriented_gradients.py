"""A fixed feature map for grey images: local histograms of edge directions (Dalal & Triggs 2005).

Everything in it is a constant, chosen without looking at the records, and every image is mapped by itself: the map
costs no privacy. Handcrafted features beat learned ones under small budgets (Tramèr & Boneh 2021).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

DIRECTIONS = 8
_BINOMIAL = (1.0, 4.0, 6.0, 4.0, 1.0)
_SOBEL = ((1.0, 0.0, -1.0), (2.0, 0.0, -2.0), (1.0, 0.0, -1.0))


class OrientedGradients(nn.Module):
    """(n, 1, height, width) images of 0..255 to (n, 8 · height/4 · width/4) float32 features of L2 norm 1.

    Blur by a 5 × 5 binomial, Sobel gradients, their positive parts along 8 directions, means over overlapping 6 × 6
    windows 4 apart, square roots. An image without an edge becomes 0.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Raises ValueError when the sides are not multiples of 4."""
        if images.ndim != 4 or images.shape[1] != 1 or images.shape[2] % 4 or images.shape[3] % 4:
            raise ValueError(f"images must have shape (n, 1, 4a, 4b), got {tuple(images.shape)}")
        line = torch.tensor(_BINOMIAL) / 16
        sobel = torch.tensor(_SOBEL) / 4
        pixels, place = images.float() / 255, images.device
        smooth = nn.functional.conv2d(pixels, torch.outer(line, line)[None, None].to(place), padding=2)
        slopes = nn.functional.conv2d(smooth, torch.stack([sobel, sobel.T])[:, None].to(place), padding=1)
        angles = torch.arange(DIRECTIONS) * (2 * math.pi / DIRECTIONS)
        compass = torch.stack([angles.cos(), angles.sin()], dim=1)[:, :, None, None].to(place)
        energy = nn.functional.conv2d(slopes, compass).relu()
        pooled = nn.functional.avg_pool2d(energy, 6, stride=4, padding=1).flatten(1).sqrt()
        return nn.functional.normalize(pooled, dim=1)
