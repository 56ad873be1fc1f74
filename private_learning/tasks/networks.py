"""The torch models of the tasks on images and signals, out of their layouts. No layer mixes the records of a batch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.tasks.convolutions import ConvolutionLayout


class ConvNorm(nn.Module):
    """A padded convolution without a constant, and a normalisation of groups of its outputs (Wu & He 2018)."""

    def __init__(self, layout: ConvolutionLayout, name: str, groups: int, stride: int = 1) -> None:
        super().__init__()
        out, into, *kernel = layout.normalised[name]
        kind = nn.Conv1d if len(kernel) == 1 else nn.Conv2d
        self.conv = kind(into, out, kernel[0], stride=stride, padding=kernel[0] // 2, bias=False)
        self.norm = nn.GroupNorm(groups, out)
        if name in layout.at_zero:
            nn.init.zeros_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Residual(nn.Module):
    """ReLU of the sum of the input and two convolutions of it (He et al. 2016, figure 5 on the left)."""

    def __init__(self, layout: ConvolutionLayout, name: str, groups: int, stride: int) -> None:
        super().__init__()
        self.one = ConvNorm(layout, f"{name}.one", groups, stride)
        self.two = ConvNorm(layout, f"{name}.two", groups)
        shortcut = f"{name}.beside"
        self.beside = ConvNorm(layout, shortcut, groups, stride) if shortcut in layout.normalised else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.two(torch.relu(self.one(x))) + self.beside(x))


class Averaged(nn.Module):
    """Blocks one after the other, the mean over positions, and one linear layer."""

    def __init__(self, blocks: Iterable[nn.Module], layout: ConvolutionLayout) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        out, into = layout.last
        self.last = nn.Linear(into, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(x).flatten(2).mean(2))


def residual(layout: ConvolutionLayout, groups: int, strides: Iterable[int]) -> nn.Module:
    """Return a network of a first convolution and blocks. The first stride is that of the convolution."""
    first, *block_strides = strides
    blocks = [Residual(layout, f"blocks.{place}", groups, stride) for place, stride in enumerate(block_strides, 2)]
    return Averaged([ConvNorm(layout, "blocks.0", groups, first), nn.ReLU(), *blocks], layout)


def signal(layout: ConvolutionLayout, groups: int) -> nn.Module:
    """Return a network of convolutions that halve the length, each with a ReLU behind."""
    names = list(layout.normalised)
    blocks = (part for name in names for part in (ConvNorm(layout, name, groups, 2), nn.ReLU()))
    return Averaged(blocks, layout)


class UNet(nn.Module):
    """Down by strides of 2, up by repeating pixels, with the levels of the way down beside (Ronneberger et al. 2015).

    (n, channels, height, width) to (n, classes, height, width) scores.
    """

    def __init__(self, layout: ConvolutionLayout, groups: int, depth: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(_twice(layout, f"down.{at}", groups, 2 if at else 1) for at in range(depth + 1))
        self.up = nn.ModuleList(_twice(layout, f"up.{at}", groups, 1) for at in range(depth))
        out, into = layout.last[:2]
        self.last = nn.Conv2d(into, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level in self.down:
            x = level(x)
            skips.append(x)
        for at in reversed(range(len(self.up))):
            wider = functional.interpolate(x, size=skips[at].shape[2:], mode="nearest")
            x = self.up[at](torch.cat([skips[at], wider], 1))
        return self.last(x)


def _twice(layout: ConvolutionLayout, name: str, groups: int, stride: int) -> nn.Module:
    first, second = ConvNorm(layout, f"{name}.0", groups, stride), ConvNorm(layout, f"{name}.2", groups)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())
