"""Networks of normalised convolutions, as names and shapes. First weights need no more, and torch builds upon them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Shapes = Mapping[str, tuple[int, ...]]
# Shorter signals and smaller images cannot be normalised: one value alone always becomes 0.
MIN_NORMALISED = 2


@dataclass(frozen=True)
class ConvolutionLayout:
    """Convolutions without a constant, each followed by a GroupNorm, and a last layer with a constant.

    normalised: name -> (outputs, inputs per group, *kernel) of the convolution
    last: (outputs, inputs, *kernel) of the last layer, a linear one or a convolution
    at_zero: names whose normalisation begins with a weight of 0
    """

    normalised: Shapes
    last: tuple[int, ...]
    at_zero: frozenset[str] = frozenset()


def strided(length: int, stride: int, times: int) -> int:
    """Return the length of a side after so many padded convolutions of this stride: divided each time, rounded up."""
    for _ in range(times):
        length = -(-length // stride)
    return length


def why_not_normalised(filters: int, groups: int, smallest: int) -> str | None:
    """Return why GroupNorm cannot normalise so many filters in so many groups, or None where it can.

    smallest: positions of one filter where the network is narrowest
    """
    if filters % groups:
        return "groups must divide filters"
    if filters // groups * smallest < MIN_NORMALISED:
        return "one value is all that some groups would hold: take fewer groups or stages, or larger inputs"
    return None
