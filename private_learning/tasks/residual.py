"""Residual networks on images: of one class, and of several labels at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import DataError, Examples, Records
from private_learning.tasks.convolutions import ConvolutionLayout, strided, why_not_normalised
from private_learning.tasks.losses import ClassLossParameters
from private_learning.tasks.multilabel import MultiLabel, names_between_bars
from private_learning.tasks.scaled import ClassifiedArrays, ImageShape, ScaledArrays, labels_of
from private_learning.tasks.weights import normalised
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import Tensor, nn


class ResidualShape(ImageShape):
    """Parameters of the images and of the network."""

    filters: int = Field(
        default=16, ge=1, le=1024, description="filters of the first stage. Every further one has twice as many"
    )
    stages: int = Field(default=3, ge=1, le=5, description="number of stages. All but the first halve height and width")
    blocks: int = Field(default=1, ge=1, le=16, description="residual blocks of each stage, of two convolutions")
    groups: int = Field(default=8, ge=1, le=1024, description="groups of every normalisation, a divisor of filters")
    first_stride: int = Field(
        default=1,
        ge=1,
        le=4,
        alias="first-stride",
        description="steps of the first convolution: 2 halves height and width at once, for large images",
    )
    zero_last_norm: bool = Field(
        default=False, alias="zero-last-norm", description="every block begins as if it were not there"
    )

    @model_validator(mode="after")
    def _normalisable(self) -> Self:
        sides = (strided(strided(side, self.first_stride, 1), 2, self.stages - 1) for side in (self.height, self.width))
        problem = why_not_normalised(self.filters, self.groups, next(sides) * next(sides))
        if problem is not None:
            raise ValueError(problem)
        return self

    @property
    def strides(self) -> list[int]:
        """Return the stride of the first convolution, then of every block."""
        later = [2, *[1] * (self.blocks - 1)] * (self.stages - 1)
        return [self.first_stride, *[1] * self.blocks, *later]

    def layout(self, outputs: int) -> ConvolutionLayout:
        """Return the layout of the whole network. Places 0 and 1 are the first convolution and its ReLU."""
        shapes = {"blocks.0": (self.filters, self.channels, 3, 3)}
        before = self.filters
        for block in range(self.stages * self.blocks):
            name, after = f"blocks.{block + 2}", self.filters << block // self.blocks
            shapes[f"{name}.one"] = (after, before, 3, 3)
            shapes[f"{name}.two"] = (after, after, 3, 3)
            if after != before:
                shapes[f"{name}.beside"] = (after, before, 1, 1)
            before = after
        at_zero = frozenset(name for name in shapes if name.endswith(".two") and self.zero_last_norm)
        return ConvolutionLayout(shapes, (outputs, before), at_zero)

    def network(self, outputs: int) -> nn.Module:
        from private_learning.tasks.networks import residual

        return residual(self.layout(outputs), self.groups, self.strides)


class ResidualParameters(ResidualShape, ClassLossParameters):
    """Parameters of the network, the loss and the classes."""

    classes: int = Field(ge=2, le=10_000, description="the label is 0, 1, …, classes − 1")


class ResidualNetwork(ClassifiedArrays):
    """Residual blocks of 3 × 3 convolutions with GroupNorm and ReLU, the mean over the image, and a linear layer."""

    name, kind = "resnet", ResidualParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.classes = self.parameters.classes
        self.gamma, self.class_weights = self.parameters.loss_settings(self.name, self.classes)
        self.shape, self.reach = self.parameters.shape, self.parameters.reach

    @property
    def layout(self) -> ConvolutionLayout:
        return self.parameters.layout(self.outputs)

    def model(self) -> nn.Module:
        return self.parameters.network(self.outputs)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return normalised(self.layout, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"height": 28, "width": 28, "classes": 2, "filters": 8, "stages": 2}


class ImageLabelsParameters(ResidualShape):
    """Parameters of the network, and names of the labels."""

    labels: str = Field(min_length=1, description="names of the labels in their order, with bars between")

    @model_validator(mode="after")
    def _names(self) -> Self:
        if len(names_between_bars(self.labels)) < 2:
            raise ValueError("labels must be two or more different names between bars, such as effusion|nodule")
        return self


class ImageLabels(ScaledArrays, MultiLabel):
    """The residual network with an output for each label."""

    name, kind = "multi-label-images", ImageLabelsParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.labels = names_between_bars(self.parameters.labels)
        self.shape, self.reach = self.parameters.shape, self.parameters.reach

    @property
    def layout(self) -> ConvolutionLayout:
        return self.parameters.layout(len(self.labels))

    def model(self) -> nn.Module:
        return self.parameters.network(len(self.labels))

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return normalised(self.layout, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"height": 28, "width": 28, "labels": "effusion|nodule|edema", "filters": 8, "stages": 2}

    def synthetic_records(self, count: int, seed: int = 0) -> Records:
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, 2, (count, len(self.labels))).astype(float)
        pixels, low = self.random_values(count, draw)
        images = np.where(labels[:, :1, None, None] > 0, pixels, low)
        labels[::7, 0] = np.nan
        return Examples.of(images, labels)

    def targets(self, data: Records) -> Tensor:
        """Return (n, labels) of 0 and 1, and NaN where the records say NaN or −1: not known."""
        labels = labels_of(self.name, data)
        if labels.dtype.kind not in "buif" or labels.ndim != 2 or labels.shape[1] != len(self.labels):
            raise DataError(f"labels: an array (records, {len(self.labels)}) of 0, 1 and NaN or −1 is expected")
        numbers = labels.astype(np.float64)
        return self.known_labels(np.where(numbers == -1, np.nan, numbers))
