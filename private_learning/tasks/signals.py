"""Classes of signals, such as electrocardiograms: a network of convolutions along time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.tasks.convolutions import ConvolutionLayout, strided, why_not_normalised
from private_learning.tasks.losses import ClassLossParameters
from private_learning.tasks.scaled import ClassifiedArrays
from private_learning.tasks.weights import normalised
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import nn

# The number of filters doubles up to so many times.
_DOUBLED = 2


class SignalParameters(ClassLossParameters):
    """Those of the signals and of the network."""

    channels: int = Field(default=1, ge=1, le=1024, description="measured at the same time, such as 12 leads")
    length: int = Field(ge=8, le=1_000_000, description="samples of each channel")
    classes: int = Field(ge=2, le=10_000, description="the label is 0, 1, …, classes − 1")
    range: str = Field(
        min_length=1,
        description="LOW..HIGH of every channel, or one for each with bars between. Values beyond are clipped",
    )
    filters: int = Field(
        default=16,
        ge=1,
        le=1024,
        description="filters of the first convolution. The next ones have 2 and 4 times as many",
    )
    layers: int = Field(default=4, ge=1, le=16, description="number of convolutions. Each halves the length")
    kernel: int = Field(default=7, ge=3, le=255, description="samples that a convolution looks at, an odd number")
    groups: int = Field(default=8, ge=1, le=1024, description="groups of every normalisation, a divisor of filters")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if len(self.ranges) not in (1, self.channels):
            raise ValueError(
                "range must be LOW..HIGH with LOW below HIGH, such as -5..5, or one for each channel with bars between"
            )
        if self.kernel % 2 == 0:
            raise ValueError("kernel must be an odd number")
        problem = why_not_normalised(self.filters, self.groups, strided(self.length, 2, self.layers))
        if problem is not None:
            raise ValueError(problem)
        return self

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """Return (low, high) of every channel, or of all, or none where one cannot be read."""
        ranges: list[tuple[float, float]] = []
        for part in self.range.split("|"):
            low, _, high = part.partition("..")
            try:
                ends = float(low), float(high)
            except ValueError:
                return []
            if not (ends[0] < ends[1] and all(map(math.isfinite, ends))):
                return []
            ranges.append(ends)
        return ranges

    @property
    def widths(self) -> list[int]:
        """Filters of each convolution."""
        return [self.filters << min(place, _DOUBLED) for place in range(self.layers)]


class SignalNetwork(ClassifiedArrays):
    """Strided convolutions with GroupNorm and ReLU, then the mean over time and a linear layer."""

    name, kind = "signal-cnn", SignalParameters
    kind_of_input = "signals", "samples"
    range_settings = "range"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        p = self.parameters = self.kind.read(self.name, parameters)
        self.classes = p.classes
        self.gamma, self.class_weights = p.loss_settings(self.name, self.classes)
        self.shape = p.channels, p.length
        # (channels, 1) where each channel has its own.
        low, high = np.array(p.ranges).T[:, :, None]
        self.reach = low, high

    @property
    def layout(self) -> ConvolutionLayout:
        # Every second place of the sequence is a ReLU.
        p, before = self.parameters, self.parameters.channels
        shapes: dict[str, tuple[int, ...]] = {}
        for place, after in enumerate(p.widths):
            shapes[f"blocks.{2 * place}"] = after, before, p.kernel
            before = after
        return ConvolutionLayout(shapes, (self.outputs, before))

    def model(self) -> nn.Module:
        from private_learning.tasks.networks import signal

        return signal(self.layout, self.parameters.groups)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return normalised(self.layout, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"channels": 2, "length": 250, "classes": 2, "range": "-2..2", "filters": 8, "layers": 3}
